package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/internal/host/connect"
	"github.com/monolith-go/monolith/internal/process/flags"
)

const (
	// skewed is how far this machine's clock may be from the NATS server's: facts have the
	// server's time, and people compare it with what machines log.
	skewed = 2 * time.Second
	// nearlyFull is the share of a stream's or a disk's room from which on it is no more enough.
	nearlyFull = 0.9
)

// logs looks at NATS and at what the roles say there.
func (e *examination) logs(ctx context.Context) {
	conn := e.cfg.Conn
	conn.Look = true
	ctx, cancel := context.WithTimeout(ctx, 6*e.cfg.Patience)
	defer cancel()
	at := connect.Redacted(conn.NATS)
	b, err := conn.Dial(ctx, "monolith doctor")
	if err != nil {
		e.ill("NATS", sentence(err), "start the server, open the way to it, or name its address and keys with --nats, --nats-ca, --nats-cert, --nats-key and --nats-creds", "nats-is-away")
		return
	}
	defer func() { _ = b.Close() }()
	asked, stop := context.WithTimeout(ctx, e.cfg.Patience)
	s, err := connect.Survey(asked, b)
	stop()
	if err != nil {
		e.ill("NATS", at+" answers, and not about its streams: "+sentence(err),
			"switch JetStream on (nats-server -js), bring up more than half of a cluster's servers, or let this user ask (monolith auth init makes one that may)", "nats-in-a-cluster")
		return
	}
	e.server(at, s)
	e.synced(ctx, at)
	whole := true
	for _, st := range s.Streams {
		e.stream(st)
		whole = whole && !st.Missing
	}
	e.builds(s.Services)
	if !whole {
		return // nothing can be read
	}
	e.letters(ctx, b)
	e.roles(ctx, b, s)
}

// server looks at what is told of the server itself.
func (e *examination) server(at string, s jetstream.Survey) {
	switch {
	case older(s.Version, 2, 12):
		e.ill("NATS", fmt.Sprintf("%s is nats-server %s, which lacks atomic batches.", at, s.Version), "install 2.12 or newer", "nats-is-away")
	default:
		e.well("NATS", "%s answers, nats-server %s.", at, s.Version)
	}
	if s.Room > 0 && float64(s.Stored) > nearlyFull*float64(s.Room) {
		e.ill("JetStream storage", fmt.Sprintf("%d of %d bytes that this account may store are taken.", s.Stored, s.Room), "raise the account's or the server's max_store, or trim the log", "the-disk-is-full")
	} else {
		e.well("JetStream storage", "%d bytes are stored.", s.Stored)
	}
	switch {
	case s.Within == 0:
	case s.Skew.Abs()-s.Within > skewed:
		e.ill("clock", fmt.Sprintf("this machine's clock is %v off the NATS server's, give or take %v.", s.Skew.Round(time.Millisecond), s.Within.Round(time.Millisecond)),
			"synchronise both clocks (chrony, ntpd): facts have the server's time", "what-the-doctor-says")
	default:
		e.well("clock", "this machine's clock agrees with the NATS server's, give or take %v.", (s.Skew.Abs() + s.Within).Round(time.Millisecond))
	}
}

// older compares the first two numbers of a version; one that cannot be read is not older.
func older(version string, major, minor int) bool {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) < 2 {
		return false
	}
	x, err := strconv.Atoi(parts[0])
	y, merr := strconv.Atoi(parts[1])
	return err == nil && merr == nil && (x < major || x == major && y < minor)
}

// synced asks the monitoring port whether each write is on disk before it is acked.
func (e *examination) synced(ctx context.Context, at string) {
	const mend = "set `jetstream { sync_interval: always }` and reload the server"
	if e.cfg.Monitor == "" {
		if connect.Unsynced(e.cfg.Conn.NATS) == "" || e.embedded() {
			e.well("sync", "writes are on disk before they are acked.")
			return
		}
		e.ill("sync", "whether "+at+" syncs each write cannot be seen from a client's port.",
			"name its monitoring port with --nats-monitor, or, where `jetstream { sync_interval: always }` is set, say so with "+connect.EnvSynced+"="+connect.SyncedAlways, "what-the-doctor-says")
		return
	}
	var said struct {
		Config struct {
			SyncAlways bool  `json:"sync_always"`
			Interval   int64 `json:"sync_interval"`
		} `json:"config"`
	}
	if err := e.monitor(ctx, "/jsz?config=true", &said); err != nil {
		e.ill("sync", "the monitoring port says nothing: "+sentence(err), "name the server's http_port with --nats-monitor", "what-the-doctor-says")
		return
	}
	if !said.Config.SyncAlways {
		e.ill("sync", fmt.Sprintf("%s syncs every %v: a power cut loses facts that were acked.", at, time.Duration(said.Config.Interval)), mend, "what-the-doctor-says")
		return
	}
	e.well("sync", "writes are on disk before they are acked.")
}

func (e *examination) monitor(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Patience)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(e.cfg.Monitor, "/")+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", q.URL.Redacted(), resp.Status)
	}
	return json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(into)
}

func (e *examination) stream(s jetstream.StreamSurvey) {
	check := "stream " + s.Name
	full := s.Refuses && s.MaxBytes > 0 && float64(s.Bytes) > nearlyFull*float64(s.MaxBytes)
	switch {
	case s.Missing:
		e.ill(check, "there is none of that name.", "start a role, which makes it; if it was there before, restore it from the archive", "nats-is-away")
	case len(s.Differs) > 0:
		e.ill(check, "its "+strings.Join(s.Differs, "; its ")+".",
			"start any role, which amends it; storage and retention cannot be amended: archive the log, make the stream anew with them, and restore", "nats-is-away")
	case full:
		e.ill(check, fmt.Sprintf("%d of its %d bytes are taken, and it refuses what has no room.", s.Bytes, s.MaxBytes), "archive and trim it (monolith archive, monolith trim), or raise its max_bytes", "the-disk-is-full")
	case len(s.Behind) > 0:
		e.ill(check, "its replicas "+strings.Join(s.Behind, ", ")+" are not up to date.", "bring up these servers and wait until `nats stream info` calls them current, before another one goes", "nats-in-a-cluster")
	default:
		e.well(check, "it is as it should be and holds %d bytes.", s.Bytes)
	}
}

// builds holds that everybody who answers is of one build.
func (e *examination) builds(all []jetstream.ServiceSurvey) {
	by := map[string][]string{}
	for _, s := range all {
		by[s.Build] = append(by[s.Build], s.Name)
	}
	if len(all) == 0 {
		return // roles says so
	}
	if len(by) == 1 {
		e.well("versions", "all %d services are of one build (%s).", len(all), all[0].Build)
		return
	}
	var say []string
	for build, names := range by {
		slices.Sort(names)
		if build == "" {
			build = "an older build that does not say"
		}
		say = append(say, strings.Join(slices.Compact(names), ", ")+": "+build)
	}
	slices.Sort(say)
	e.ill("versions", "the services are of "+strconv.Itoa(len(by))+" builds ("+strings.Join(say, "; ")+"); this command is "+flags.Version()+".", "finish the upgrade: start the older ones again from the newer binary", "something-was-killed")
}

// letters counts what was refused and waits for a person.
func (e *examination) letters(ctx context.Context, b bus.Bus) {
	ctx, cancel := context.WithTimeout(ctx, e.cfg.Patience)
	defer cancel()
	var n uint64
	var last bus.Parked
	err := b.DeadLetters().Each(ctx, func(p bus.Parked) error {
		n++
		last = p
		return nil
	})
	switch {
	case err != nil:
		e.ill("dead letters", "they cannot be listed: "+sentence(err), "see whether the stream MONOLITH_DLQ answers (nats stream info MONOLITH_DLQ)", "a-request-or-a-record-was-refused")
	case n > 0:
		e.ill("dead letters", fmt.Sprintf("%d wait; the last one was refused by %s: %s", n, orNobody(last.By), period(fmt.Sprint(last.Reason))), "read them (monolith dlq ls), mend and send again (monolith dlq redrive SEQ), or remove them (monolith dlq rm SEQ)", "a-request-or-a-record-was-refused")
	default:
		e.well("dead letters", "none waits.")
	}
}

func orNobody(who string) string {
	if who == "" {
		return "nobody known"
	}
	return who
}

// sentence is an error as one.
func sentence(err error) string {
	return period(strings.Join(strings.Fields(err.Error()), " "))
}

func period(s string) string {
	if strings.HasSuffix(s, ".") {
		return s
	}
	return s + "."
}
