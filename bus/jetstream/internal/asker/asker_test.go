package asker_test

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/monolith-go/monolith/bus/jetstream/internal/asker"
	"github.com/monolith-go/monolith/events"
)

// key is a user's, in a file, and its public part.
func key(t *testing.T) (file, public string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	if public, err = pair.PublicKey(); err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "nk")
	if err := os.WriteFile(file, append(seed, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, public
}

func who(t *testing.T, creds, askers string) *asker.Who {
	t.Helper()
	path := ""
	if askers != "" {
		path = filepath.Join(t.TempDir(), "askers")
		if err := os.WriteFile(path, []byte(askers), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w, err := asker.New(creds, path)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

const subject = "monolith.demo.cmd.portal.load"

var body = []byte(`{"modelName":"movies"}`)

// A signature says who asked for these words on this subject at this time, and for nothing else.
func TestWhatIsSignedIsKnown(t *testing.T) {
	file, public := key(t)
	foreign, _ := key(t)
	now := time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)
	answers := who(t, "", "# people\noperator "+public+"\n")
	good, err := who(t, file, "").Sign(subject, body, now)
	if err != nil {
		t.Fatal(err)
	}
	got, err := answers.Check(good, subject, body, now.Add(50*time.Second), asker.Fresh)
	if want := (events.Asked{By: "operator", Key: public, From: good.From}); err != nil || got != want {
		t.Fatalf("Check = %+v, %v; want %+v", got, err, want)
	}
	stranger, err := who(t, foreign, "").Sign(subject, body, now)
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*events.Asked)) events.Asked {
		a := good
		change(&a)
		return a
	}
	for name, tc := range map[string]struct {
		a       events.Asked
		subject string
		body    string
		after   time.Duration
		want    string
	}{
		"unsigned":        {events.Asked{By: "operator", Key: public}, subject, string(body), 0, "is not signed"},
		"another body":    {good, subject, `{"modelName":"books"}`, 0, "not of these words"},
		"another subject": {good, "monolith.demo.cmd.portal.unload", string(body), 0, "not of these words"},
		"another host":    {with(func(a *events.Asked) { a.From = "elsewhere" }), subject, string(body), 0, "not of these words"},
		"a later time":    {with(func(a *events.Asked) { a.Proof = "2026-11-24T03:10:00Z" + a.Proof[len("2026-11-24T03:00:00Z"):] }), subject, string(body), 10 * time.Minute, "not of these words"},
		"stale":           {good, subject, string(body), 61 * time.Second, "signed 1m1s ago"},
		"from the future": {good, subject, string(body), -61 * time.Second, "signed -1m1s ago"},
		"unknown key":     {stranger, subject, string(body), 0, "none of --nats-askers"},
		"its own name":    {with(func(a *events.Asked) { a.Proof = stranger.Proof }), subject, string(body), 0, "not of these words"},
		"malformed":       {with(func(a *events.Asked) { a.Proof = "now x y" }), subject, string(body), 0, "malformed"},
		"too long":        {with(func(a *events.Asked) { a.From = strings.Repeat("x", 300) }), subject, string(body), 0, "malformed"},
	} {
		a, err := answers.Check(tc.a, tc.subject, []byte(tc.body), now.Add(tc.after), asker.Fresh)
		if !errors.Is(err, events.ErrInvalid) || !strings.Contains(err.Error(), tc.want) || a != (events.Asked{}) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
}

// Without keys an asker is who it says it is, and the fact says that nobody has checked it.
func TestWithoutKeysAnAskerIsNotAuthenticated(t *testing.T) {
	file, _ := key(t)
	now := time.Now()
	me := fmt.Sprint("uid ", os.Getuid())
	if u, err := user.Current(); err == nil {
		me = u.Username
	}
	answers := who(t, "", "")
	for _, creds := range []string{"", file} { // an answerer without --nats-askers cannot tell
		a, err := who(t, creds, "").Sign(subject, body, now)
		if err != nil {
			t.Fatal(err)
		}
		got, err := answers.Check(a, subject, body, now.Add(time.Hour), asker.Fresh)
		if err != nil || got.By != me || got.Key != "" || got.Proof != "" || !strings.Contains(got.String(), "not authenticated") {
			t.Errorf("Check = %+v, %v", got, err)
		}
	}
	if got, err := answers.Check(events.Asked{}, subject, body, now, asker.Fresh); err != nil || got != (events.Asked{}) {
		t.Errorf("of a bare request: %+v, %v", got, err)
	}
}

func TestWrongFiles(t *testing.T) {
	_, public := key(t)
	for text, want := range map[string]string{
		"operator": "not a name", "operator SUABC": "not a name", "a " + public + "\nb " + public: "not a name", "# nobody": "names nobody",
	} {
		path := filepath.Join(t.TempDir(), "askers")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := asker.New("", path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	path := filepath.Join(t.TempDir(), "nk")
	if err := os.WriteFile(path, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := who(t, path, "").Sign(subject, body, time.Now()); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("Sign with no seed: %v", err)
	}
}

// A command that somebody got hold of is answered once, as long as its signature counts; what stands
// in the log is read again.
func TestASignatureIsGoodForOneCommand(t *testing.T) {
	file, public := key(t)
	now := time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)
	answers, asks := who(t, "", "operator "+public+"\n"), who(t, file, "")
	sign := func(at time.Time) events.Asked {
		a, err := asks.Sign(subject, body, at)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	check := func(a events.Asked, at time.Time, want string) {
		t.Helper()
		if _, err := answers.Check(a, subject, body, at, asker.Fresh); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("at %v: %v, want %q", at.Sub(now), err, want)
		}
	}
	early := sign(now.Add(59 * time.Second)) // by a clock that is ahead
	check(early, now, "")
	for i := range 117 {
		at := now.Add(time.Duration(i) * time.Second)
		check(early, at, "used already")
		check(sign(at), at, "")
	}
	check(early, now.Add(118*time.Second), "used already")
	check(early, now.Add(120*time.Second), "signed 1m1s ago")
	stale := sign(now.Add(20 * time.Minute))
	check(stale, now.Add(20*time.Minute), "")
	check(stale, now.Add(20*time.Minute), "used already")
	logged := sign(now)
	for range 2 {
		if _, err := answers.Check(logged, subject, body, now, asker.Logged); err != nil {
			t.Errorf("read again: %v", err)
		}
	}
}

// A signature counts from a minute ahead of its time to a minute behind it, and is remembered for
// as long.
func TestASignatureCountsForAMinute(t *testing.T) {
	file, public := key(t)
	now := time.Date(2026, 11, 24, 3, 0, 0, 0, time.UTC)
	answers, asks := who(t, "", "operator "+public+"\n"), who(t, file, "")
	at := func(after time.Duration) events.Asked {
		a, err := asks.Sign(subject, body, now.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	ahead := at(3 * time.Minute)
	for _, tc := range []struct {
		a     events.Asked
		after time.Duration
		want  string
	}{
		{at(-time.Minute), 0, ""},
		{at(-time.Minute - 1), 0, "signed 1m0s ago"},
		{at(time.Minute + 1), 0, "signed -1m0s ago"},
		{ahead, 2 * time.Minute, ""}, // as those of the first two minutes need not be remembered any more
		{ahead, 4 * time.Minute, "used already"},
		{ahead, 4*time.Minute + 1, "signed 1m0s ago"},
	} {
		_, err := answers.Check(tc.a, subject, body, now.Add(tc.after), asker.Fresh)
		if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
			t.Errorf("after %v: %v, want %q", tc.after, err, tc.want)
		}
	}
}
