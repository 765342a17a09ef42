// Package asker has a command say who sends it, and its answerer know that it is true.
//
// The server knows who is connected and tells no other client, as long as all share an account. So
// the asker signs with the NKey that it connects with, and the answerer checks with the public keys
// of those who may ask. What is signed is the place, the body and the time, so that a command that
// somebody got hold of is good for nothing else, and not for long.
package asker

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/user"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nkeys"

	"github.com/monolith-go/monolith/events"
)

// Most time between an asker's clock and ours, for a command that is answered at once, and for a
// request that waits in the log, whose writer resends it while the log is away.
const (
	Fresh  = time.Minute
	Logged = 30 * time.Minute
)

// Who is the asker on one side, and what its answerer knows on the other.
type Who struct {
	creds    string            // file with the seed; "": nothing is signed
	names    map[string]string // holders by public key; nil: nobody is checked
	by, from string            // without a key
	seen     used              // signatures of commands that were answered
}

// maxUsed bounds the signatures that are remembered of one span of time.
const maxUsed = 1 << 18

// used remembers signatures for at least as long as they count. It is this process's: where several
// answer, each answers a command once.
type used struct {
	mu          sync.Mutex // guards what follows
	now, before map[string]bool
	since       time.Time // of now
}

// first says whether the signature was not used before; err, that no more can be remembered.
func (u *used) first(sig string, at time.Time) (first bool, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if age := at.Sub(u.since); age < 0 || age >= 2*Fresh { // from Fresh ahead to Fresh behind it counts
		u.before, u.now, u.since = u.now, map[string]bool{}, at
		if age >= 4*Fresh {
			u.before = nil
		}
	}
	switch {
	case u.now[sig] || u.before[sig]:
		return false, nil
	case len(u.now) >= maxUsed:
		return false, fmt.Errorf("%d commands were asked within %v, no more are taken: ask again later", maxUsed, 2*Fresh)
	}
	u.now[sig] = true
	return true, nil
}

// New reads who may ask, from a file with a name and a public NKey on each line; "": nobody is
// checked. The credentials are read at each signature, as they may be renewed.
func New(creds, askers string) (*Who, error) {
	w := &Who{creds: creds}
	if u, err := user.Current(); err == nil {
		w.by = u.Username
	}
	w.by = cmp.Or(w.by, fmt.Sprint("uid ", os.Getuid()))
	w.from, _ = os.Hostname() // "": not known
	if askers == "" {
		return w, nil
	}
	raw, err := os.ReadFile(askers)
	if err != nil {
		return nil, fmt.Errorf("read who may ask: %w", err)
	}
	w.names = map[string]string{}
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) != 2 || !nkeys.IsValidPublicUserKey(f[1]) || w.names[f[1]] != "" {
			return nil, fmt.Errorf("%s: the line %q is not a name and a user's public NKey of its own, as monolith auth init writes them", askers, strings.TrimSpace(line))
		}
		w.names[f[1]] = f[0]
	}
	if len(w.names) == 0 {
		return nil, fmt.Errorf("%s names nobody who may ask", askers)
	}
	return w, nil
}

// Sign says who asks for data on the subject: by signature where there is a key.
func (w *Who) Sign(subject string, data []byte, now time.Time) (events.Asked, error) {
	a := events.Asked{By: w.by, From: w.from}.Bounded()
	if w.creds == "" {
		return a, nil
	}
	raw, err := os.ReadFile(w.creds)
	if err != nil {
		return a, fmt.Errorf("read the key to sign a command with: %w", err)
	}
	pair, err := nkeys.ParseDecoratedNKey(raw)
	if err != nil { // without what the library says: it may quote the secret
		return a, errors.New("the credentials in " + w.creds + " hold no seed to sign a command with")
	}
	defer pair.Wipe()
	if a.Key, err = pair.PublicKey(); err != nil {
		return a, err
	}
	at, nonce := now.UTC().Format(time.RFC3339Nano), rand.Text()
	sig, err := pair.Sign(signed(subject, data, a, at, nonce))
	a.Proof = at + " " + nonce + " " + base64.RawURLEncoding.EncodeToString(sig)
	return a, err
}

// signed are the bytes under a signature. Headers hold no line breaks, nor do subjects.
func signed(subject string, data []byte, a events.Asked, at, nonce string) []byte {
	return fmt.Appendf(nil, "monolith asks v1\n%s\n%x\n%s\n%s\n%s\n%s\n", subject, sha256.Sum256(data), a.Key, a.From, at, nonce)
}

// Check is who asked, as the fact that answers will say. Where nobody is checked that is what the
// asker told, without a key. Errors are [events.ErrInvalid].
func (w *Who) Check(a events.Asked, subject string, data []byte, now time.Time, within time.Duration) (events.Asked, error) {
	if w.names == nil {
		a.Key = ""
		return a.Bounded().Fact(), nil
	}
	refuse := func(format string, args ...any) (events.Asked, error) {
		return events.Asked{}, fmt.Errorf("%w: who asks is not known: %s", events.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if a.Proof == "" {
		return refuse("the command is not signed: send it with monolith call, and --nats-creds naming your key")
	}
	name, ok := w.names[a.Key]
	if !ok {
		return refuse("the key %q is none of --nats-askers", a.Bounded().Key)
	}
	f := strings.Fields(a.Proof)
	if len(f) != 3 || a.Bounded() != a {
		return refuse("the signature is malformed")
	}
	at, err := time.Parse(time.RFC3339Nano, f[0])
	sig, serr := base64.RawURLEncoding.DecodeString(f[2])
	pub, kerr := nkeys.FromPublicKey(a.Key)
	if errors.Join(err, serr, kerr) != nil {
		return refuse("the signature is malformed")
	}
	if err := pub.Verify(signed(subject, data, a, f[0], f[1]), sig); err != nil {
		return refuse("the signature is not of these words on this subject")
	}
	if age := now.Sub(at); age > within || age < -within {
		return refuse("it was signed %v ago, and counts for %v: ask again, or set the clocks", age.Round(time.Second), within)
	}
	if within == Fresh { // what stands in the log is read again and again
		if first, err := w.seen.first(a.Key+" "+f[1], now); err != nil {
			return refuse("%v", err)
		} else if !first {
			return refuse("the signature was used already: each command wants one of its own")
		}
	}
	return events.Asked{By: name, Key: a.Key, From: a.From}, nil
}
