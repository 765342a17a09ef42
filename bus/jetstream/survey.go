package jetstream

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nats.go/micro"

	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
	"github.com/monolith-go/monolith/bus/jetstream/internal/leases"
)

// Survey is how the server, the streams and the leases stand. Making one changes nothing.
type Survey struct {
	Version  string            // of the server
	Skew     time.Duration     // by which this machine's clock is ahead of the server's
	Within   time.Duration     // how exact Skew is
	Stored   int64             // bytes on disk of the account's streams
	Room     int64             // bytes that the account may store; 0: not limited
	Streams  []StreamSurvey    // those of the bus, in its order
	Leases   map[string]string // holder by name
	Services []ServiceSurvey   // of the namespace, by name and id
}

// StreamSurvey is one stream as it is, beside what it is to be.
type StreamSurvey struct {
	Name     string
	Missing  bool
	Differs  []string // settings that a role's next start would change, or cannot
	Bytes    int64
	MaxBytes int64
	Refuses  bool     // what has no room; else the oldest goes
	Behind   []string // replicas that are not up to date
}

// ServiceSurvey is one process that answers a service's commands.
type ServiceSurvey struct {
	Name  string // portal, or ps.<job>.<index>
	ID    string
	Build string // "": it is older than that is said
}

// Survey looks at everything that the bus stands on, for the services of one namespace.
func (b *Bus) Survey(ctx context.Context) (Survey, error) {
	ctx, cancel := b.conn.Bound(ctx)
	defer cancel()
	s := Survey{Version: b.conn.NATS.ConnectedServerVersion()}
	account, err := b.conn.JS.AccountInfo(ctx)
	if err != nil {
		return s, fmt.Errorf("ask for JetStream: %w", conn.Failure(err))
	}
	s.Stored, s.Room = int64(account.Store), max(account.Limits.MaxStore, 0)
	for _, want := range b.streams() {
		st, err := b.surveyStream(ctx, want, &s)
		if err != nil {
			return s, fmt.Errorf("stream %s: %w", want.Name, conn.Failure(err))
		}
		s.Streams = append(s.Streams, st)
	}
	if s.Leases, err = leases.New(b.conn).Held(ctx); err != nil {
		return s, err
	}
	s.Services, err = b.surveyServices(ctx)
	return s, err
}

func (b *Bus) surveyStream(ctx context.Context, want jetstream.StreamConfig, s *Survey) (StreamSurvey, error) {
	out := StreamSurvey{Name: want.Name, Refuses: want.Discard == jetstream.DiscardNew}
	asked := time.Now()
	st, err := b.conn.JS.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		out.Missing = true
		return out, nil
	}
	if err != nil {
		return out, err
	}
	info := st.CachedInfo()
	s.clock(asked, time.Since(asked), info.TimeStamp)
	have := info.Config
	next := b.amended(have, want, false)
	next.Storage, next.Retention = want.Storage, want.Retention // which no update can change
	out.Differs = differences(have, next)
	out.Bytes, out.MaxBytes = int64(info.State.Bytes), max(have.MaxBytes, 0)
	out.Behind = behind(info.Cluster)
	return out, nil
}

// behind are the replicas that lag or are away; a server may say nothing of its cluster.
func behind(c *jetstream.ClusterInfo) (names []string) {
	if c == nil {
		return nil
	}
	for _, r := range c.Replicas {
		if !r.Current || r.Offline {
			names = append(names, r.Name)
		}
	}
	return names
}

// clock takes what an answer that took so long says of the server's clock, which it read at about half
// way: the quickest answer is the most exact. An old server says no time.
func (s *Survey) clock(asked time.Time, took time.Duration, said time.Time) {
	if half := took / 2; !said.IsZero() && (s.Within == 0 || half < s.Within) {
		s.Skew, s.Within = asked.Add(half).Sub(said), max(half, time.Nanosecond)
	}
}

// differences are the settings in which two configurations differ, as JetStream spells them.
func differences(have, want jetstream.StreamConfig) (out []string) {
	h, w := reflect.ValueOf(have), reflect.ValueOf(want)
	for i := range h.NumField() {
		if !reflect.DeepEqual(h.Field(i).Interface(), w.Field(i).Interface()) {
			name, _, _ := strings.Cut(h.Type().Field(i).Tag.Get("json"), ",")
			out = append(out, fmt.Sprintf("%s is %v and should be %v", name, h.Field(i).Interface(), w.Field(i).Interface()))
		}
	}
	return out
}

const (
	serviceQuiet = 300 * time.Millisecond // without an answer: all have answered
	serviceLimit = 3 * time.Second
)

// surveyServices asks every service of the server who it is.
func (b *Bus) surveyServices(ctx context.Context) (all []ServiceSurvey, err error) {
	ctx, cancel := context.WithTimeout(ctx, serviceLimit)
	defer cancel()
	inbox := b.conn.NATS.NewInbox()
	sub, err := b.conn.NATS.SubscribeSync(inbox)
	if err != nil {
		return nil, conn.Failure(err)
	}
	defer func() { _ = sub.Unsubscribe() }() // fails with the connection alone
	if err := b.conn.NATS.PublishRequest("$SRV.INFO", inbox, nil); err != nil {
		return nil, conn.Failure(err)
	}
	for {
		wait, stop := context.WithTimeout(ctx, serviceQuiet)
		m, err := sub.NextMsgWithContext(wait)
		stop()
		if err != nil {
			break // quiet, or nobody serves anything
		}
		var info micro.Info
		if m.Header.Get("Status") != "" || json.Unmarshal(m.Data, &info) != nil || info.Metadata[bzidKey] != b.cfg.BZID {
			continue
		}
		all = append(all, ServiceSurvey{Name: info.Metadata[nameKey], ID: info.ID, Build: info.Metadata[buildKey]})
	}
	slices.SortFunc(all, func(x, y ServiceSurvey) int { return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID)) })
	if err := b.conn.NATS.LastError(); errors.Is(err, nats.ErrPermissionViolation) {
		return all, fmt.Errorf("ask for services: %w", err)
	}
	return all, nil
}
