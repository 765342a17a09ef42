package registry_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/bus/mem"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/projections/registry"
)

func TestReplayByName(t *testing.T) {
	b := mem.New()
	defer b.Close()
	for version := range int64(2) {
		_, err := b.Log().Append(t.Context(), bus.Draft{
			Subject: events.Join("demo", "model", "movie"), Expect: bus.Any,
			Event: &model.Event{Body: &model.Event_LoadAccepted{LoadAccepted: &model.LoadAccepted{
				Load: &model.Load{ModelName: "movie", ModelDir: "/d", NumShard: 1, Version: version + 1},
			}}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"catalog", "plan", "fleet", "layout", "lineage", "servers", "znode"}; !slices.Equal(registry.Names(), want) {
		t.Errorf("names: %v", registry.Names())
	}
	hashes := map[string]bool{}
	for _, name := range registry.Names() {
		state, hash, err := registry.Replay(t.Context(), b.Log(), name, "", 2)
		if err != nil || !json.Valid(state) || len(hash) != 64 || hashes[hash] {
			t.Errorf("%s: %s %s %v", name, state, hash, err)
		}
		hashes[hash] = true
	}
	one, _, err := registry.Replay(t.Context(), b.Log(), "catalog", "", 1)
	if err != nil {
		t.Fatal(err)
	}
	two, _, err := registry.Replay(t.Context(), b.Log(), "catalog", "", follow.End)
	if err != nil {
		t.Fatal(err)
	}
	want := "models.movie.load.version: \"1\" -> \"2\"\nmodels.movie.load_seq: 1 -> 2\nmodels.movie.seq: 1 -> 2\nseq: 1 -> 2\n"
	if got := registry.Diff(one, two); got != want {
		t.Errorf("diff:\n%s\nwant:\n%s", got, want)
	}
	if other, _, err := registry.Replay(t.Context(), b.Log(), "catalog", "other", follow.End); err != nil || strings.Contains(string(other), "movie") {
		t.Errorf("another namespace: %s %v", other, err)
	}
	for bzid, shows := range map[string]bool{"": true, "demo": true, "other": false} {
		tree, _, err := registry.Replay(t.Context(), b.Log(), "znode", bzid, follow.End)
		if err != nil || strings.Contains(string(tree), "/demo/portal/movie") != shows || !strings.Contains(string(tree), `"seq": 2,`) {
			t.Errorf("the tree of %q: %s %v", bzid, tree, err)
		}
	}
	if _, _, err := registry.Replay(t.Context(), b.Log(), "layouts", "", follow.End); err == nil || !strings.Contains(err.Error(), "catalog, plan, fleet, layout, lineage, servers, znode") {
		t.Errorf("unknown view: %v", err)
	}
	if _, _, err := registry.Replay(t.Context(), b.Log(), "plan", "", 3); !errors.Is(err, bus.ErrNotFound) {
		t.Errorf("beyond the end: %v", err)
	}
}

func TestDiff(t *testing.T) {
	for _, tc := range []struct{ name, a, b, want string }{
		{"equal but for white space", `{"a":[1,{"b":null}]}`, `{ "a": [1, {"b": null}] }`, ""},
		{"changed, added, removed", `{"a":1,"b":2}`, `{"a":2,"c":"<x>"}`, "a: 1 -> 2\nb: 2 -> -\nc: - -> \"<x>\"\n"},
		{"null is there", `{"a":null}`, `{}`, "a: null -> -\n"},
		{"large numbers", `{"a":18446744073709551615}`, `{"a":18446744073709551614}`, "a: 18446744073709551615 -> 18446744073709551614\n"},
		{"lists", `[1,2,3]`, `[1,4]`, "[1]: 2 -> 4\n[2]: 3 -> -\n"},
		{"kinds", `{"a":{"b":1}}`, `{"a":[1]}`, "a: {\"b\":1} -> [1]\n"},
		{"keys with dots", `{"/a.b":{"":1}}`, `{"/a.b":{"":2}}`, "\"/a.b\".\"\": 1 -> 2\n"},
		{"scalars", `1`, `2`, ": 1 -> 2\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := registry.Diff([]byte(tc.a), []byte(tc.b)); got != tc.want {
				t.Errorf("got\n%swant\n%s", got, tc.want)
			}
		})
	}
	if got := registry.Diff([]byte("{"), []byte("{}")); !strings.Contains(got, "not comparable") {
		t.Errorf("got %q", got)
	}
}
