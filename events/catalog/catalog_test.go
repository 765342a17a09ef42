package catalog_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
)

// golden holds one line per fact and released form, "<subject>\t<json>": bytes that
// stay readable for ever. A line is never changed, only added.
func golden(t *testing.T) map[string][2]string {
	t.Helper()
	files, err := filepath.Glob("testdata/golden/*.tsv")
	if err != nil || len(files) == 0 {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	lines := map[string][2]string{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
			subject, body, ok := strings.Cut(line, "\t")
			if !ok {
				t.Fatalf("%s:%d: no tab", file, i+1)
			}
			lines[file+":"+subject+body] = [2]string{subject, body}
		}
	}
	return lines
}

func TestGoldenBytes(t *testing.T) {
	seen := map[string]bool{}
	for name, line := range golden(t) {
		subject, body := events.Subject(line[0]), []byte(line[1])
		m, err := catalog.Decode(subject, false, body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p, _ := subject.Parse()
		seen[p.Context+"."+catalog.Type(m)] = true
		again, err := catalog.Encode(subject, m)
		if err != nil || string(again) != string(body) {
			t.Errorf("%s is now written as\n%s (%v)", name, again, err)
		}
		binary, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := catalog.Decode(subject, true, binary); err != nil || !proto.Equal(b, m) {
			t.Errorf("%s: binary form differs: %v, %v", name, b, err)
		}
	}
	for _, c := range catalog.Contexts {
		m, _ := catalog.New(c)
		fields := m.ProtoReflect().Descriptor().Oneofs().ByName("body").Fields()
		for i := range fields.Len() {
			if key := c + "." + fields.Get(i).JSONName(); !seen[key] {
				t.Errorf("no golden bytes of %s", key)
			}
		}
	}
}

func TestDecodeRejects(t *testing.T) {
	const req, fact = "monolith.demo.model.m1.request", "monolith.demo.model.m1"
	for _, tc := range []struct {
		name, subject, data string
		want                error
	}{
		{"cut short", req, `{"loadRequested":{`, events.ErrMalformed},
		{"two bodies", req, `{"unloadRequested":{}}{}`, events.ErrMalformed},
		{"two facts", req, `{"unloadRequested":{},"loadRequested":{}}`, events.ErrMalformed},
		{"empty", req, `{}`, events.ErrMalformed},
		{"not an object", req, `[]`, events.ErrMalformed},
		{"null body", req, `{"unloadRequested":null}`, events.ErrMalformed},
		{"unknown fact", req, `{"loadDemanded":{}}`, events.ErrUnknown},
		{"unknown context", "monolith.demo.modle.m1.request", `{"loadRequested":{}}`, events.ErrUnknown},
		{"typing error in a request", req, `{"loadRequested":{"laod":{}}}`, events.ErrMalformed},
		{"leader epoch below 0", "monolith.demo.training.j/t", `{"partitionTaken":{"epoch":"1","trainer":"t","leaderEpoch":-1}}`, events.ErrInvalid},
		{"relative dir", req, `{"loadRequested":{"load":{"modelName":"m1","modelDir":"exported_models"}}}`, events.ErrInvalid},
		{"another's body", req, `{"loadRequested":{"load":{"modelName":"m2","modelDir":"/d"}}}`, events.ErrInvalid},
		{"a request as a fact", fact, `{"unloadRequested":{}}`, events.ErrInvalid},
		{"a fact as a request", req, `{"unloadAccepted":{}}`, events.ErrInvalid},
		{"unresolved version", fact, `{"loadAccepted":{"load":{"modelName":"m1","modelDir":"/d","numShard":1}}}`, events.ErrInvalid},
		{"a layout that climbs", "monolith.demo.layout.layouts/%2E%2E/x", `{"entriesAdded":{"entries":["m:a"]}}`, events.ErrInvalid},
		{"neither layout nor saved models", "monolith.demo.layout.x", `{"entriesAdded":{"entries":["m:a"]}}`, events.ErrInvalid},
		{"a model of two steps", "monolith.demo.layout.saved_models/a/b", `{"savedModelsRemoved":{"subGraphs":["a"]}}`, events.ErrInvalid},
		{"a layout's fact on a model", "monolith.demo.layout.saved_models/m", `{"entriesAdded":{"entries":["m:a"]}}`, events.ErrInvalid},
		{"a model's fact on a layout", "monolith.demo.layout.layouts/l", `{"savedModelsRemoved":{"subGraphs":["a"]}}`, events.ErrInvalid},
		{"no entries", "monolith.demo.layout.layouts/l", `{"entriesAdded":{}}`, events.ErrInvalid},
		{"an entry without a sub-graph", "monolith.demo.layout.layouts/l", `{"entriesRemoved":{"entries":["m"]}}`, events.ErrInvalid},
		{"a sub-graph of two steps", "monolith.demo.layout.saved_models/m", `{"savedModelsRemoved":{"subGraphs":["a/b"]}}`, events.ErrInvalid},
		{"a declaration without config", "monolith.demo.layout.saved_models/m.request", `{"declareRequested":{"savedModel":{"subGraph":"a"}}}`, events.ErrInvalid},
		{"a pattern without a model", "monolith.demo.layout.layouts/l.request", `{"publishRequested":{"pattern":":*"}}`, events.ErrInvalid},
		{"an export without a folder", "monolith.demo.layout.saved_models/m.request", `{"declareExportRequested":{}}`, events.ErrInvalid},
		{"a refusal without a reason", "monolith.demo.layout.layouts/l", `{"refused":{"request":"publishRequested"}}`, events.ErrInvalid},
		{"a data centre in capitals", "monolith.demo.replica.m/LQ:c/ps:0/0", `{"registered":{"replica":{"modelName":"m","serverType":"ps","container":"c","dataCenter":"LQ:c"}}}`, events.ErrInvalid},
		{"a data centre without its cluster", "monolith.demo.replica.m/lq/ps:0/0", `{"registered":{"replica":{"modelName":"m","serverType":"ps","container":"c","dataCenter":"lq"}}}`, events.ErrInvalid},
		{"another host's offer", "monolith.demo.sync.a", `{"sourceOffered":{"host":"b"}}`, events.ErrInvalid},
		{"an offer without a port", "monolith.demo.sync.a", `{"sourceOffered":{"host":"a","address":"10.0.0.7"}}`, events.ErrInvalid},
		{"an offer of a relative folder", "monolith.demo.sync.a", `{"sourceOffered":{"host":"a","folders":["srv"]}}`, events.ErrInvalid},
		{"an offer of a folder that climbs", "monolith.demo.sync.a", `{"sourceOffered":{"host":"a","folders":["/srv/../etc"]}}`, events.ErrInvalid},
		{"an offer of too many folders", "monolith.demo.sync.a", `{"sourceOffered":{"host":"a","folders":["/a"` + strings.Repeat(`,"/a"`, 256) + `]}}`, events.ErrInvalid},
		{"a part of no sub-model", "monolith.demo.training.j", `{"modelExported":{"version":"1","modelDir":"/d","subModels":["entry"],"parts":{"ps_0":{"export":"` + strings.Repeat("ab", 32) + `"}}}}`, events.ErrInvalid},
		{"a part without its identity", "monolith.demo.training.j", `{"modelExported":{"version":"1","modelDir":"/d","subModels":["entry"],"parts":{"entry":{"export":"x"}}}}`, events.ErrInvalid},
		{"a checkpoint's shard with slots", "monolith.demo.training.j", `{"checkpointSaved":{"checkpoint":{"id":"1","dir":"/d","shards":[{"slots":[{"slot":1,"rows":"1"}]}]}}}`, events.ErrInvalid},
		{"too large", req, `{"unloadRequested":{"reason":"` + strings.Repeat("x", catalog.MaxBytes) + `"}}`, events.ErrInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := catalog.Decode(events.Subject(tc.subject), false, []byte(tc.data))
			if !errors.Is(err, tc.want) {
				t.Fatalf("Decode = %v, %v; want %v", m, err, tc.want)
			}
		})
	}
	if _, err := catalog.Decode(fact, false, []byte(`{"unloadAccepted":{"reason":"r","since":1}}`)); err != nil {
		t.Errorf("a newer writer's field in a fact: %v", err)
	}
	if _, err := catalog.Decode(fact, true, []byte{0xfa, 0x3f, 0x00}); !errors.Is(err, events.ErrUnknown) {
		t.Errorf("a newer writer's binary fact: %v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("monolith.demo.model.m1.request", false, []byte(`{"loadRequested":{"load":{"modelName":"m1","modelDir":"/d"}}}`))
	f.Add("monolith.demo.shard.j/ps:0", true, []byte{10, 3, 10, 1, 'j'})
	f.Fuzz(func(t *testing.T, subject string, binary bool, data []byte) {
		m, err := catalog.Decode(events.Subject(subject), binary, data)
		if err != nil {
			if !errors.Is(err, events.ErrMalformed) && !errors.Is(err, events.ErrInvalid) && !errors.Is(err, events.ErrUnknown) {
				t.Fatalf("an error nobody can act on: %v", err)
			}
			return
		}
		body, err := catalog.Encode(events.Subject(subject), m)
		if err != nil {
			return // valid in binary, text that is no UTF-8 for example
		}
		if again, err := catalog.Decode(events.Subject(subject), false, body); err != nil || !proto.Equal(again, m) {
			t.Fatalf("%s does not read back: %v, %v", body, again, err)
		}
	})
}
