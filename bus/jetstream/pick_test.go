package jetstream

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/monolith-go/monolith/bus"
)

// commandOf reads "a!" as a guarded message on a, "b" as an unguarded one on b.
func commandOf(ctx context.Context, text string) *command {
	cmd := &command{ctx: ctx}
	for subject := range strings.FieldsSeq(text) {
		m := outgoing{expect: bus.Any}
		m.subject, _ = strings.CutSuffix(subject, "!")
		if m.subject != subject {
			m.expect = 1
		}
		cmd.msgs = append(cmd.msgs, m)
	}
	return cmd
}

func TestPick(t *testing.T) {
	many := slices.Repeat([]string{"a"}, batchLimit+5)
	for _, tc := range []struct {
		name  string
		in    []string
		group []int // indexes of the commands in the group
	}{
		{"unguarded share a subject", []string{"a", "a", "b"}, []int{0, 1, 2}},
		{"guarded twice", []string{"a!", "b!", "a!"}, []int{0, 1}},
		{"guarded behind unguarded", []string{"a", "a!", "b!"}, []int{0, 2}},
		{"unguarded behind guarded", []string{"a!", "a", "b"}, []int{0, 2}},
		{"inside one command", []string{"a! a b!", "b", "c!"}, []int{0, 2}},
		{"by a later message", []string{"a", "b! a!", "b!"}, []int{0, 2}},
		{"no more than fit", many, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var in []*command
			for _, text := range tc.in {
				in = append(in, commandOf(t.Context(), text))
			}
			group, rest := pick(in)
			if len(group)+len(rest) != len(in) {
				t.Fatalf("%d picked, %d left of %d", len(group), len(rest), len(in))
			}
			if tc.group == nil {
				if len(group) != batchLimit {
					t.Fatalf("%d picked", len(group))
				}
				return
			}
			var got []int
			for _, cmd := range group {
				got = append(got, slices.Index(in, cmd))
			}
			if !slices.Equal(got, tc.group) {
				t.Fatalf("picked %v, want %v", got, tc.group)
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if group, rest := pick([]*command{commandOf(ctx, "a!"), commandOf(t.Context(), "a!")}); len(group) != 1 || len(rest) != 0 {
		t.Fatalf("a caller that has gone holds up others: %d picked, %d left", len(group), len(rest))
	}
	big := commandOf(t.Context(), "a")
	big.size = 2 * batchBytes
	if group, rest := pick([]*command{big, commandOf(t.Context(), "b")}); len(group) != 1 || len(rest) != 1 {
		t.Fatalf("a command larger than a batch goes alone: %d picked, %d left", len(group), len(rest))
	}
}

// TestAwaited: nobody is waited for where single publishes are quicker, and half of those that would fill more than half
// of a batch.
func TestAwaited(t *testing.T) {
	for _, c := range []struct{ sent, callers, want int }{
		{1, 1, 0}, {plainRound, plainRound + 3, 0}, {plainRound + 1, plainRound + 1, plainRound + 1}, {plainRound + 1, 40, 40},
		{batchLimit / 2, batchLimit / 2, batchLimit / 2}, {batchLimit / 2, batchLimit/2 + 1, batchLimit / 4}, {batchLimit, batchLimit, batchLimit / 2},
	} {
		if got := awaited(c.sent, c.callers); got != c.want {
			t.Errorf("after %d commands and with %d callers %d are awaited, want %d", c.sent, c.callers, got, c.want)
		}
	}
}
