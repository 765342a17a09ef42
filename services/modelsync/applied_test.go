package modelsync

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/transfer"
)

const signal = "mpulse.b.applied."

func said(container string, applied ...uint64) []byte {
	d := &transfer.DeltasApplied{ModelName: "m", SubModel: "ps_0", Container: container}
	for _, seq := range applied {
		d.Applied = append(d.Applied, &transfer.Applied{SyncSeq: seq, UnixUs: int64(1000 + seq)})
	}
	data, err := events.Marshal(d)
	if err != nil {
		panic(err)
	}
	return data
}

func TestAppliedMerges(t *testing.T) {
	a := newApplied()
	for _, s := range []struct {
		container string
		seqs      []uint64
	}{{"c.1", []uint64{7, 5}}, {"c.1", []uint64{5, 6}}, {"c2", []uint64{9}}, {"c.1", nil}} {
		if err := a.hear(signal+events.Escape(s.container), said(s.container, s.seqs...)); err != nil {
			t.Fatal(err)
		}
	}
	drafts, dropped := a.take("b")
	if len(drafts) != 2 || dropped != 0 {
		t.Fatalf("%d drafts, %d dropped", len(drafts), dropped)
	}
	d := drafts[0].Event.(*transfer.Event).GetDeltasApplied()
	var seqs []uint64
	for _, x := range d.GetApplied() {
		seqs = append(seqs, x.GetSyncSeq())
	}
	if fmt.Sprint(seqs) != "[5 6 7]" || drafts[0].Subject != "monolith.b.sync.m/ps_0/c%2E1" || drafts[0].Expect != bus.Any {
		t.Errorf("%v on %s", seqs, drafts[0].Subject)
	}
	if drafts, _ := a.take("b"); len(drafts) != 0 {
		t.Errorf("taken twice: %v", drafts)
	}
}

func TestAppliedBounds(t *testing.T) {
	a := newApplied()
	var seqs []uint64
	for i := range uint64(maxApplied + 10) {
		seqs = append(seqs, 1<<62+i)
	}
	if err := a.hear(signal+"c", said("c", seqs...)); err != nil {
		t.Fatal(err)
	}
	drafts, dropped := a.take("b")
	if dropped != 10 {
		t.Errorf("%d dropped, want 10", dropped)
	}
	kept, first := 0, uint64(0)
	for _, d := range drafts {
		body, err := catalog.Encode(d.Subject, d.Event)
		if err != nil {
			t.Fatal(err)
		}
		if len(body) > 256<<10 {
			t.Errorf("a fact of %d bytes", len(body))
		}
		all := d.Event.(*transfer.Event).GetDeltasApplied().GetApplied()
		if first == 0 {
			first = all[0].GetSyncSeq()
		}
		kept += len(all)
	}
	if kept != maxApplied || first != 1<<62+10 {
		t.Errorf("%d kept from %d on, want the newest %d", kept, first, maxApplied)
	}
	for i := range maxServers + 1 {
		c := fmt.Sprintf("c%d", i)
		if err := a.hear(signal+c, said(c, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if drafts, dropped := a.take("b"); len(drafts) != maxServers || dropped != 1 {
		t.Errorf("%d servers, %d dropped", len(drafts), dropped)
	}
}

func TestAppliedRefuses(t *testing.T) {
	a := newApplied()
	for _, tc := range []struct {
		name, subject string
		payload       []byte
		want          error
	}{
		{"no json", signal + "c", []byte("junk"), events.ErrMalformed},
		{"empty", signal + "c", nil, events.ErrMalformed},
		{"another's name", signal + "d", said("c", 1), events.ErrInvalid},
		{"no name", signal + "%", said("", 1), events.ErrInvalid},
		{"slash", signal + "c", []byte(`{"modelName":"a/b","subModel":"ps_0","container":"c"}`), events.ErrInvalid},
		{"no sub-model", signal + "c", []byte(`{"modelName":"a","container":"c"}`), events.ErrInvalid},
	} {
		if err := a.hear(tc.subject, tc.payload); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	if drafts, _ := a.take("b"); len(drafts) != 0 {
		t.Errorf("something was kept: %v", drafts)
	}
}

// Whatever a signal holds, it becomes facts that the log takes, or nothing.
func FuzzHear(f *testing.F) {
	f.Add("c", said("c", 1, 2, 3))
	f.Add("c%2E1", said("c.1", 9, 9))
	f.Add("c", []byte(`{"modelName":"m","subModel":"ps_0","container":"c","applied":[{},{"syncSeq":"18446744073709551615","unixUs":"-1"}]}`))
	f.Add("", []byte(`{"applied":[null]}`))
	f.Add("c", []byte(`{"modelName":"`+strings.Repeat("m", 300)+`","subModel":"s","container":"c","applied":[{"syncSeq":1}]}`))
	f.Fuzz(func(t *testing.T, token string, payload []byte) {
		a := newApplied()
		if err := a.hear(signal+token, payload); err != nil {
			if !errors.Is(err, events.ErrMalformed) && !errors.Is(err, events.ErrInvalid) {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		drafts, _ := a.take("b")
		for _, d := range drafts {
			if _, err := catalog.Encode(d.Subject, d.Event); err != nil {
				t.Fatalf("the log refuses what was heard: %v", err)
			}
		}
	})
}
