package tfssupervisor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/monolith-go/monolith/events/replica"
	"github.com/monolith-go/monolith/events/server"
	"github.com/monolith-go/monolith/internal/compat/instances"
	"github.com/monolith-go/monolith/internal/durable"
	"github.com/monolith-go/monolith/internal/retry"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/projections/lineage"
	"github.com/monolith-go/monolith/projections/plan"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

const (
	// reloadTimeout bounds one configuration call. The original answers it only once
	// the models are loaded; what comes later is seen by polling.
	reloadTimeout = 30 * time.Second
	// resendAfter is how long a server that lacks a model, or has failed to load it,
	// waits for the same configuration again.
	resendAfter = 5 * time.Second
	// unreachable is the same for a server that did not answer the call.
	unreachable = 250 * time.Millisecond
	// roundEvery is the least time between two looks at what should be served.
	roundEvery = 10 * time.Millisecond
)

// track is one sub-model on one server process.
type track struct {
	assigned
	wanted bool
	stat   replica.State  // as last polled; UNKNOWN: the server does not know it, or is silent about it
	at     int64          // version that stat is of
	misses int            // polls in a row that were not answered,
	since  time.Time      // the first of them, and
	code   codes.Code     // how the last one failed
	silent bool           // there were too many: nobody knows its state
	said   map[int64]fact // by version, until another is told of after it was unloaded
}

// fact is the last one told about a version.
type fact struct {
	kind   string
	reason string
}

// instance is one life of a model server, from its start to its end. All of it belongs
// to the goroutine that manages it.
type instance struct {
	s      *Supervisor
	srv    *Server
	client *tfserving.ModelClient
	tracks map[string]*track

	sent     []tfserving.Model // nil: nothing yet
	sentAt   time.Time
	again    time.Duration // after which the same configuration is sent again where needed
	inFlight context.CancelFunc
	answers  chan answer
	refused  string // last complaint about the configuration, to say each once
	unloaded string // what it last said that it could not load; empty: nothing
	choosy   bool   // it has refused one for what no model server here need know

	heard        time.Time // when it last answered a poll, or there was nothing to ask
	missedRounds int       // polls since

	folders    map[string]sighting // of a layout's saved models, by path
	complaints map[string]string   // what was logged last, by name
}

// answer is what came back from one configuration call.
type answer struct {
	err  error
	done context.CancelFunc
}

// credentials are those of the server's gRPC port, which shows the very certificate that it
// was given here.
func (s *Supervisor) credentials(srv *Server) (credentials.TransportCredentials, error) {
	if !srv.Secure {
		return insecure.NewCredentials(), nil
	}
	conf, err := s.cfg.GRPCTLS.Or(s.env.TLS).Twin()
	if err != nil {
		return nil, fmt.Errorf("the model server at %s answers over TLS: --grpc-tls-cert and -key: %w", srv.GRPCAddr, err)
	}
	return credentials.NewTLS(conf), nil
}

// manage keeps the server's models in line with the plan until ctx ends.
func (s *Supervisor) manage(ctx context.Context, srv *Server) error {
	creds, err := s.credentials(srv)
	if err != nil {
		return err
	}
	conn, err := grpc.NewClient(srv.GRPCAddr, grpc.WithTransportCredentials(creds))
	if err != nil {
		return fmt.Errorf("reach the model server at %s: %w", srv.GRPCAddr, err)
	}
	defer func() { _ = conn.Close() }()
	in := &instance{s: s, srv: srv, client: tfserving.NewModelClient(conn), tracks: map[string]*track{}, answers: make(chan answer), heard: time.Now()}
	in.fix(ctx)
	defer s.env.Health.OK(loadingProblem) // of this life
	defer in.settle()
	t := time.NewTicker(s.cfg.Poll)
	defer t.Stop()
	for poll := true; ; {
		began := time.Now()
		planned, copied := s.plan.Changed(), s.lineage.Changed()
		var offered, nodes <-chan struct{} // never, without a layout
		if s.layout != nil {
			offered = s.layout.Changed()
		}
		if s.tree != nil {
			nodes = s.tree.Changed()
		}
		in.configure(ctx)
		if poll {
			if err := in.poll(ctx); err != nil {
				return err
			}
		}
		s.report(in.replicas())
		// The server is asked at its own pace, however much happens in the log.
		poll = false
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			poll = true
		case <-planned:
		case <-copied:
		case <-offered:
		case <-nodes:
		case a := <-in.answers:
			in.answered(ctx, a)
			poll = true
		}
		if !poll && retry.Sleep(ctx, time.Until(began.Add(roundEvery))) != nil {
			return nil
		}
	}
}

// fix takes up what the server reads from a file of its own.
func (in *instance) fix(ctx context.Context) {
	for _, f := range in.s.cfg.Fixed {
		t := &track{assigned: assigned{model: f.Model, sub: f.Sub, own: f.Name, version: anyVersion, replica: in.s.cfg.replica()}, wanted: true, said: map[int64]fact{}}
		in.tracks[t.name()] = t
		in.say(ctx, t, t.version, fact{kind: "loading"})
	}
}

// settle waits for the configuration call that is still out.
func (in *instance) settle() {
	if in.inFlight != nil {
		in.inFlight()
		a := <-in.answers
		a.done()
	}
}

// configure sends the configuration where it differs from what was sent, or where the
// server does not have what it was told.
func (in *instance) configure(ctx context.Context) {
	if len(in.s.cfg.Fixed) > 0 {
		return
	}
	want := slices.DeleteFunc(in.wanted(ctx), in.mustWait)
	models := make([]tfserving.Model, len(want))
	for i, a := range want {
		models[i] = a.config()
	}
	changed := !slices.EqualFunc(models, in.sent, func(a, b tfserving.Model) bool {
		return a.Name == b.Name && a.BasePath == b.BasePath && a.Policy.All == b.Policy.All && slices.Equal(a.Policy.Versions, b.Policy.Versions)
	})
	if !changed && (in.inFlight != nil || !in.lacking() || time.Since(in.sentAt) < in.again) {
		return
	}
	if in.inFlight != nil {
		// A newer wish: the old call need not be waited for, its configuration is
		// replaced by the next one.
		in.inFlight()
		a := <-in.answers
		a.done()
		in.inFlight = nil
	}
	if changed {
		in.told(ctx, want)
	}
	in.sent, in.sentAt, in.again = models, time.Now(), resendAfter
	in.writeConfig(models)
	call, cancel := context.WithTimeout(ctx, reloadTimeout)
	in.inFlight = cancel
	go func() {
		_, err := in.client.HandleReloadConfigRequest(call, &apis.ReloadConfigRequest{Config: tfserving.Config(models...)})
		in.answers <- answer{err, cancel}
	}()
}

// writeConfig puts a configuration into the file that the server reads. The call that follows says the
// same at once; a crash in between leaves what the server reads at its next look.
func (in *instance) writeConfig(models []tfserving.Model) {
	path := in.s.cfg.ConfigFile
	if path == "" {
		return
	}
	text, err := instances.Text(tfserving.Config(models...))
	if err == nil {
		err = durable.Swap(path, 0o644, text)
	}
	if err != nil {
		in.s.env.Health.Fail(fileProblem, fmt.Errorf("the server would take its configuration back: %w", err))
		return
	}
	in.s.env.Health.OK(fileProblem)
}

// fileProblem names a configuration file that cannot be written.
const fileProblem = "configuration file"

// mustWait tells whether a cannot be part of the next configuration: it has the name and
// number of another model that the server has not unloaded yet, or it is of a kind for
// which this server has refused a whole configuration.
func (in *instance) mustWait(a assigned) bool {
	if in.choosy && !common(a.sub) {
		return true
	}
	t := in.tracks[a.name()]
	return t != nil && a.replaces(t.assigned)
}

// common tells whether every model server can be expected to know such a sub-model.
func common(sub string) bool {
	kind, _, ok := replica.TaskOf(sub)
	return ok && (kind == "entry" || kind == "ps")
}

// wanted is what this container should serve now, by name: of its layout, or of the plan.
func (in *instance) wanted(ctx context.Context) (want []assigned) {
	if in.s.layout != nil {
		return in.offers(ctx)
	}
	in.s.plan.Read(func(p plan.State) {
		in.s.lineage.Read(func(l lineage.State) { want = assignments(p, l, in.s.cfg.Container, in.s.cfg.Host, in.before) })
	})
	return want
}

// before is what the last configuration said about a sub-model.
func (in *instance) before(name string) (assigned, bool) {
	t := in.tracks[name]
	if t == nil || !t.wanted {
		return assigned{}, false
	}
	return t.assigned, true
}

// lacking tells whether the server does not serve something that it should.
func (in *instance) lacking() bool {
	for _, t := range in.tracks {
		if t.wanted && (t.stat == replica.State_UNKNOWN || t.stat == replica.State_END) {
			return true
		}
	}
	return false
}

// told notes what the next configuration adds and drops.
func (in *instance) told(ctx context.Context, want []assigned) {
	keep := map[string]bool{}
	for _, a := range want {
		keep[a.name()] = true
		t := in.tracks[a.name()]
		if t == nil {
			t = &track{said: map[int64]fact{}}
			in.tracks[a.name()] = t
		}
		fresh := !t.wanted || t.version != a.version
		before, had := t.assigned, t.wanted
		t.assigned, t.wanted = a, true
		if a.version != anyVersion { // else the server decides what goes
			in.unloading(ctx, t, append(a.versions(), anyVersion))
		}
		if fresh && !(had && before.candidate == a.version) {
			in.say(ctx, t, a.version, fact{kind: "loading"})
		}
		if a.candidate != 0 && !(had && a.candidate == before.candidate) {
			in.say(ctx, t, a.candidate, fact{kind: "loading"})
		}
	}
	for name, t := range in.tracks {
		if t.wanted && !keep[name] {
			t.wanted = false
			in.unloading(ctx, t, nil)
		}
	}
}

func (in *instance) answered(ctx context.Context, a answer) {
	a.done()
	in.inFlight = nil
	switch code := status.Code(a.err); code {
	case codes.OK:
		in.refused = ""
		in.loaded(nil)
	case codes.Unavailable:
		in.again = unreachable
	case codes.DeadlineExceeded, codes.Canceled:
	case codes.InvalidArgument: // it was not taken at all
		in.declined(ctx, status.Convert(a.err).Message())
	default: // a model failed to load; polling says which
		in.loaded(a.err)
	}
}

// loaded notes what the server could not load of the last configuration, which is sent
// again and again: the log has it once until it changes, and health while it lasts.
func (in *instance) loaded(err error) {
	if err == nil {
		if in.unloaded != "" {
			in.s.env.Log.Info("model server has loaded everything")
		}
		in.unloaded = ""
		in.s.env.Health.OK(loadingProblem)
		return
	}
	in.s.env.Health.Fail(loadingProblem, err)
	if text := err.Error(); text != in.unloaded {
		in.unloaded = text
		in.s.env.Log.Warn("model server could not load everything", "err", err)
	}
}

// declined handles a configuration of which the server has taken nothing. Where it names
// what this server need not know, the next one does without, so that the rest is served.
func (in *instance) declined(ctx context.Context, msg string) {
	if msg == in.refused {
		return
	}
	in.refused = msg
	odd := 0
	for _, t := range in.tracks {
		if t.wanted && !common(t.sub) {
			odd++
		}
	}
	if odd > 0 {
		in.choosy, in.refused = true, "" // what it says of the rest is news, even in the same words
	}
	for _, t := range in.tracks {
		if t.wanted && (odd == 0 || !common(t.sub)) {
			in.say(ctx, t, t.version, fact{"failed", "the model server refuses the configuration: " + msg})
		}
	}
}

// seen takes a status in. The replica's state is that of the best version: while a new
// one loads, the old one answers.
func (in *instance) seen(ctx context.Context, t *track, versions []*apis.ModelVersionStatus) {
	stat, at := replica.State_UNKNOWN, t.version
	for _, v := range versions {
		st := replica.State(v.GetState())
		if t.version == anyVersion {
			if better := rank(st, false) - rank(stat, false); better > 0 || better == 0 && v.GetVersion() > at {
				stat, at = st, v.GetVersion()
			}
			continue
		}
		if v.GetVersion() == t.candidate && t.wanted {
			in.beside(ctx, t, v)
			continue // its state is not the replica's
		}
		if v.GetVersion() == t.version && t.wanted {
			switch {
			case st == replica.State_AVAILABLE:
				in.say(ctx, t, t.version, fact{kind: "available"})
			case st == replica.State_END && v.GetStatus().GetErrorMessage() != "":
				in.say(ctx, t, t.version, fact{"failed", fmt.Sprintf("%s: %s", v.GetStatus().GetErrorCode(), v.GetStatus().GetErrorMessage())})
			}
		}
		if rank(st, v.GetVersion() == t.version) > rank(stat, at == t.version) {
			stat, at = st, v.GetVersion()
		}
	}
	t.stat, t.at = stat, at
	if t.version == anyVersion && t.wanted {
		in.chosen(ctx, t, versions)
	}
}

// beside tells what became of a canary's candidate. Nobody is sent to it by its replica, so it
// says nothing about that.
func (in *instance) beside(ctx context.Context, t *track, v *apis.ModelVersionStatus) {
	switch st := replica.State(v.GetState()); {
	case st == replica.State_AVAILABLE:
		in.say(ctx, t, t.candidate, fact{kind: "available"})
	case st == replica.State_END && v.GetStatus().GetErrorMessage() != "":
		in.say(ctx, t, t.candidate, fact{"failed", fmt.Sprintf("%s: %s", v.GetStatus().GetErrorCode(), v.GetStatus().GetErrorMessage())})
	}
}

// chosen tells of the version that the server has chosen by itself, and of those before it once they are gone.
func (in *instance) chosen(ctx context.Context, t *track, versions []*apis.ModelVersionStatus) {
	stay := []int64{anyVersion}
	for _, v := range versions {
		switch st := replica.State(v.GetState()); {
		case st == replica.State_AVAILABLE:
			if v.GetVersion() == t.at {
				in.say(ctx, t, t.at, fact{kind: "available"})
			}
		case st == replica.State_START, st == replica.State_LOADING:
		case st == replica.State_END && v.GetVersion() == t.at && v.GetStatus().GetErrorMessage() != "":
			in.say(ctx, t, t.at, fact{"failed", fmt.Sprintf("%s: %s", v.GetStatus().GetErrorCode(), v.GetStatus().GetErrorMessage())})
		default:
			continue
		}
		stay = append(stay, v.GetVersion())
	}
	in.unloading(ctx, t, stay)
}

// unloading tells it of every version that was told of, but for those that stay.
func (in *instance) unloading(ctx context.Context, t *track, stay []int64) {
	for _, v := range slices.Sorted(maps.Keys(t.said)) {
		if f, told := t.said[v]; told && f.kind != "unloading" && !slices.Contains(stay, v) {
			in.say(ctx, t, v, fact{kind: "unloading"})
		}
	}
}

// rank orders the versions of one sub-model: one that answers, then the wanted one,
// then what is on its way out.
func rank(st replica.State, wanted bool) int {
	r := 0
	switch st {
	case replica.State_AVAILABLE:
		r = 10
	case replica.State_START, replica.State_LOADING:
		r = 6
	case replica.State_UNLOADING:
		r = 4
	case replica.State_END:
		r = 2
	}
	if wanted && r > 0 {
		r++
	}
	return r
}

// say tells a fact about a version unless it was the last one told about it.
func (in *instance) say(ctx context.Context, t *track, version int64, f fact) {
	if t.said[version] == f {
		return
	}
	maps.DeleteFunc(t.said, func(v int64, last fact) bool { return v != version && last.kind == "unloading" })
	t.said[version] = f
	m := &server.Model{ModelName: t.model, SubModel: t.sub, Version: max(version, 0)}
	e := &server.Event{}
	switch f.kind {
	case "loading":
		e.Body = &server.Event_ModelLoading{ModelLoading: &server.ModelLoading{Model: m}}
	case "available":
		e.Body = &server.Event_ModelAvailable{ModelAvailable: &server.ModelAvailable{Model: m}}
	case "unloading":
		e.Body = &server.Event_ModelUnloading{ModelUnloading: &server.ModelUnloading{Model: m}}
	case "failed":
		e.Body = &server.Event_ModelFailed{ModelFailed: &server.ModelFailed{Model: m, Reason: f.reason}}
	}
	in.s.env.Log.Info("model "+f.kind, "model", t.name(), "version", version, "reason", f.reason)
	in.s.facts.say(ctx, e)
}

// replicas is what the next heartbeat says is served here. A sub-model that the server
// does not know yet has been asked for: START.
func (in *instance) replicas() []*replica.Replica {
	var out []*replica.Replica
	at := in.s.cfg.addresses(in.srv)
	for _, name := range slices.Sorted(maps.Keys(in.tracks)) {
		t := in.tracks[name]
		stat := t.stat
		if stat == replica.State_UNKNOWN && !t.silent {
			if !t.wanted {
				continue
			}
			stat = replica.State_START
		}
		out = append(out, t.report(in.s.cfg.Container, at, stat, t.at))
	}
	return out
}
