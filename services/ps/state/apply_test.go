package state

import (
	"strings"
	"testing"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/services/ps/pstest"
)

func TestJudge(t *testing.T) {
	at := partition{epoch: 5, next: 100}
	for _, tc := range []struct {
		name     string
		p        partition
		epoch    uint64
		from, to int64
		want     decision
		code     rowwire.Code
	}{
		{"the next range", at, 5, 100, 110, learn, 0},
		{"a new holder's next range", at, 6, 100, 110, learn, 0},
		{"the very first range", partition{}, 1, 0, 10, learn, 0},
		{"a first range that does not start at 0", partition{}, 1, 3, 10, 0, rowwire.Gap},
		{"the last range again", at, 5, 90, 100, known, 0},
		{"a range long past", at, 5, 0, 10, known, 0},
		{"a new holder repeats the last range", at, 6, 90, 100, known, 0},
		{"a fenced holder's next range", at, 4, 100, 110, 0, rowwire.Fenced},
		{"a fenced holder repeats", at, 4, 90, 100, 0, rowwire.Fenced},
		{"a range too far on", at, 5, 101, 110, 0, rowwire.Gap},
		{"cut elsewhere", at, 5, 95, 105, 0, rowwire.Overlap},
		{"cut elsewhere, long", at, 5, 0, 1000, 0, rowwire.Overlap},
	} {
		got, err := judge(tc.p, tc.epoch, tc.from, tc.to)
		if tc.code != 0 {
			if err == nil || err.Code != tc.code || err.Next != tc.p.next {
				t.Errorf("%s: %v, want %v with next %d", tc.name, err, tc.code, tc.p.next)
			}
		} else if err != nil || got != tc.want {
			t.Errorf("%s: %v, %v; want %v", tc.name, got, err, tc.want)
		}
	}
}

func TestTooFewShardsAreRefused(t *testing.T) {
	spec := pstest.Counting()
	spec.Layers = append([]*model.DenseLayer{{Name: "wide", Units: 16384, Activation: model.Activation_RELU}, {Name: "next", Units: 1024}}, spec.Layers...)
	_, err := newSchema(Config{Job: job, Shards: 1}, spec)
	if err == nil || !strings.Contains(err.Error(), "train with 2 shards or more") {
		t.Errorf("newSchema = %v", err)
	}
	if _, err := newSchema(Config{Job: job, Shards: 2}, spec); err != nil {
		t.Error(err)
	}
}
