package writer

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/follow"
	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/layout"
	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/internal/wire/znodedata"
	"github.com/monolith-go/monolith/projections/zookeeper/tree"
	"github.com/monolith-go/monolith/projections/zookeeper/view"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// router turns clients' writes to paths that show a service's facts into commands to
// that service, and refuses what cannot become one. It changes nothing itself.
//
// A write is conditional on what its client has seen: of writes to one aggregate one at a
// time is checked and answered, and the command carries the sequence at which the tree was
// checked, beyond which the service refuses it.
type router struct {
	bzid     string
	log      bus.Log
	turns    *turns
	commands bus.Commands
	letters  bus.DeadLetters
	tree     *follow.Follower[view.State]
	logger   *slog.Logger
	answer   time.Duration // longest that a command and the wait for its fact take
	refusals string        // name of the dead letters of refused writes
}

func newRouter(cfg Config, tree *follow.Follower[view.State]) router {
	return router{
		bzid: cfg.BZID, log: cfg.Bus.Log(), turns: &turns{of: map[string]*turn{}}, commands: cfg.Bus.Commands(), letters: cfg.Bus.DeadLetters(),
		tree: tree, logger: cfg.Log, answer: cfg.Answer, refusals: cfg.Source + ".zookeeper",
	}
}

// routed is a write with a path that belongs to a service.
type routed struct {
	p  *znode.Proposed
	at int // the operation it is about
	to target
}

// target is what a path means.
type target struct {
	kind          string // portal, saved_models, layouts or publish
	model, sub    string
	layout, entry string
	aggregate     string
	context       string
}

// match is nil for a write that no service owns.
func (r router) match(p *znode.Proposed) *routed {
	for i, op := range p.GetOps() {
		if _, isCheck := op.GetOp().(*znode.Op_Check); isCheck {
			continue
		}
		if t, ok := r.target(op.Path()); ok {
			return &routed{p: p, at: i, to: t}
		}
	}
	return nil
}

func (r router) target(path string) (t target, ok bool) {
	rest, mine := strings.CutPrefix(path, "/"+r.bzid+"/")
	if !mine {
		return t, false
	}
	steps := strings.Split(rest, "/")
	t.kind = steps[0]
	last := steps[len(steps)-1]
	switch {
	case t.kind == "publish" && len(steps) > 1:
		return t, true
	case t.kind == "portal" && len(steps) == 2:
		t.model = last
		t.context, t.aggregate = "model", last
		return t, true
	case t.kind == "saved_models" && len(steps) == 3:
		t.model, t.sub = steps[1], last
		t.context, t.aggregate = "layout", layout.ModelAggregate(t.model)
		return t, true
	case t.kind == "layouts" && len(steps) > 2 && strings.Contains(last, ":"):
		t.layout, t.entry = strings.Join(steps[1:len(steps)-1], "/"), last
		t.context, t.aggregate = "layout", layout.LayoutAggregate(t.layout)
		return t, true
	}
	return t, false
}

// refusal is an answer of ZooKeeper's and, when there is one, the request that was
// refused, for the dead letters.
type refusal struct {
	code    wire.Code
	reason  string
	request proto.Message
}

// run answers a routed write. flush returns once everything proposed before is folded.
func (r router) run(c *routed, flush func(context.Context) error, done func(uint64, *tree.Outcome, error)) {
	ctx, cancel := context.WithTimeout(context.Background(), r.answer)
	defer cancel()
	end, err := r.turns.take(ctx, c.to.context+"."+c.to.aggregate)
	if err != nil {
		done(0, nil, fmt.Errorf("earlier writes to %s are not answered: %w", c.p.GetOps()[c.at].Path(), err))
		return
	}
	defer end()
	if err := flush(ctx); err != nil {
		done(0, nil, err)
		return
	}
	op := c.p.GetOps()[c.at]
	result := tree.Result{Op: view.KindOf(op)}
	var no *refusal
	switch {
	case c.to.kind == "publish":
		no = &refusal{code: wire.NoAuth, reason: "the nodes below publish are the publisher's: load a model instead"}
	case c.p.GetMulti():
		no = &refusal{code: wire.BadArguments, reason: "a multi cannot hold it, because the service that owns the path decides on its own: send it alone"}
	default:
		var err error
		if no, err = r.command(ctx, c, op); err != nil {
			done(0, nil, err)
			return
		}
	}
	o := &tree.Outcome{Multi: c.p.GetMulti()}
	if no != nil {
		o.Code = no.code
		o.Results = make([]tree.Result, len(c.p.GetOps()))
		for i, op := range c.p.GetOps() {
			o.Results[i] = tree.Result{Op: view.KindOf(op)}
			switch {
			case i == c.at:
				o.Results[i].Code = no.code
			case i > c.at:
				o.Results[i].Code = wire.RuntimeInconsistency
			}
		}
		r.tell(ctx, op.Path(), c.to, no)
	} else if result.Op == tree.OpCreate {
		result.Path = op.Path()
	}
	var zxid uint64
	r.tree.Read(func(t view.State) {
		zxid = t.Seq
		if st, ok := t.Stat(op.Path()); ok {
			result.Stat = st
		}
	})
	if no == nil {
		o.Results = []tree.Result{result}
	}
	done(zxid, o, nil)
}

// tell logs a refusal, and parks the request that a service refused, ready to be fixed
// and sent again.
func (r router) tell(ctx context.Context, path string, to target, no *refusal) {
	r.logger.Warn("zookeeper write refused", "path", path, "code", no.code, "reason", no.reason)
	if no.request == nil {
		return
	}
	data, err := events.Marshal(no.request)
	if err == nil {
		_, err = r.letters.Park(ctx, bus.Parked{
			Reason: no.reason, By: r.refusals, Stream: "zookeeper:" + path, StreamSeq: uint64(time.Now().UnixNano()),
			Subject: string(events.Join(r.bzid, to.context, to.aggregate).Request()), Data: data,
		})
	}
	if err != nil {
		r.logger.Warn("refused zookeeper write not parked", "path", path, "err", err)
	}
}

// command asks the service. A refusal of its own reaches the client as BadArguments,
// those that ZooKeeper would have made under their own codes.
func (r router) command(ctx context.Context, c *routed, op *znode.Op) (*refusal, error) {
	seen, code := r.checks(c.p, op)
	if code != wire.OK {
		return &refusal{code: code, reason: "as ZooKeeper answers it"}, nil
	}
	name, body, request, err := ask(c.to, op)
	if err == nil {
		body, err = guarded(body, seen)
	}
	if err != nil {
		return &refusal{code: wire.BadArguments, reason: err.Error()}, nil
	}
	reply, err := r.commands.Call(ctx, r.bzid, name, body)
	var said *bus.CommandError
	if errors.As(err, &said) && said.Code == bus.CodeConflict {
		switch last, err := r.log.LastOf(ctx, events.Join(r.bzid, c.to.context, c.to.aggregate)); {
		case err != nil:
			return nil, fmt.Errorf("find what has changed meanwhile: %w", err)
		case last > seen: // it was decided on less than there is: look again
			if err := r.tree.Wait(ctx, last); err != nil {
				return nil, err
			}
			return r.command(ctx, c, op)
		}
	}
	switch {
	case errors.As(err, &said) && said.Code != bus.CodeUnavailable && said.Code != bus.CodeInternal:
		return &refusal{code: wire.BadArguments, reason: said.Message, request: request}, nil
	case err != nil:
		return nil, fmt.Errorf("ask %s: %w", name, err)
	}
	var answer struct {
		Seq uint64 `json:"seq"`
	}
	if err := json.Unmarshal(reply, &answer); err != nil {
		return nil, fmt.Errorf("the answer of %s: %w", name, err)
	}
	return nil, r.tree.Wait(ctx, answer.Seq)
}

// guarded is a command's body with the sequence up to which the tree was looked at.
func guarded(body []byte, seen uint64) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	all["expectSeq"] = strconv.AppendUint(nil, seen, 10)
	return json.Marshal(all)
}

// checks are those that ZooKeeper makes before a write, and where the tree stood then; the
// service makes its own.
func (r router) checks(p *znode.Proposed, op *znode.Op) (seen uint64, code wire.Code) {
	path := op.Path()
	up := path[:strings.LastIndexByte(path, '/')]
	r.tree.Read(func(t view.State) {
		seen = t.Seq
		if _, open := t.Session(p.GetSession()); !open && p.GetSession() != 0 {
			code = wire.SessionExpired
			return
		}
		on := func(path string, perm int32) wire.Code {
			acl, _, ok := t.ACL(path)
			switch {
			case !ok:
				return wire.NoNode
			case !tree.Allowed(acl, perm, p.GetAuth()):
				return wire.NoAuth
			}
			return wire.OK
		}
		st, exists := t.Stat(path)
		version := func(want int32) wire.Code {
			switch {
			case !exists:
				return wire.NoNode
			case want != -1 && want != st.Version:
				return wire.BadVersion
			}
			return wire.OK
		}
		switch o := op.GetOp().(type) {
		case *znode.Op_Create:
			if code = on(up, wire.PermCreate); code == wire.OK && exists {
				code = wire.NodeExists
			}
		case *znode.Op_SetData:
			if code = on(path, wire.PermWrite); code == wire.OK {
				code = version(o.SetData.GetVersion())
			}
		case *znode.Op_Delete:
			if code = on(up, wire.PermDelete); code == wire.OK {
				if code = version(o.Delete.GetVersion()); code == wire.OK && st.NumChildren > 0 {
					code = wire.NotEmpty
				}
			}
		}
	})
	return seen, code
}

// ask is the command that the operation becomes, and the same as a request on the log.
func ask(to target, op *znode.Op) (command string, body []byte, request proto.Message, err error) {
	var data []byte
	overwrite := false
	switch o := op.GetOp().(type) {
	case *znode.Op_Create:
		if o.Create.GetMode() != znode.Mode_PERSISTENT {
			return "", nil, nil, errors.New("the node shows a service's fact: create it as a plain persistent one")
		}
		data = o.Create.GetData()
	case *znode.Op_SetData:
		data, overwrite = o.SetData.GetData(), true
	case *znode.Op_Delete:
		return askDelete(to)
	default:
		return "", nil, nil, errors.New("the node shows a service's fact: only create, setData and delete are understood")
	}
	var v any
	switch to.kind {
	case "portal":
		load, err := loadOf(to.model, data)
		if err != nil {
			return "", nil, nil, err
		}
		body, err := events.Marshal(load)
		return "portal.load", body, &model.Event{Body: &model.Event_LoadRequested{LoadRequested: &model.LoadRequested{Load: load}}}, err
	case "saved_models":
		var config layout.DeployConfig
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(data, &config); err != nil {
			return "", nil, nil, fmt.Errorf("the data is no deploy config such as %s: %w", znodedata.SavedModelDeployConfig{ModelBasePath: "/…/exported_models/ps_0", VersionPolicy: "latest"}.Bytes(), err)
		}
		raw, err := events.Marshal(&config)
		if err != nil {
			return "", nil, nil, err
		}
		command = "portal.declareSavedModel"
		v = map[string]any{"model": to.model, "sub": to.sub, "config": json.RawMessage(raw), "overwrite": overwrite}
		request = &layout.Event{Body: &layout.Event_DeclareRequested{DeclareRequested: &layout.DeclareRequested{
			SavedModel: &layout.SavedModel{SubGraph: to.sub, Config: &config}, Overwrite: overwrite}}}
	default:
		command = "portal.addLayoutEntry"
		v = map[string]string{"layout": to.layout, "entry": to.entry}
		request = &layout.Event{Body: &layout.Event_AddEntryRequested{AddEntryRequested: &layout.AddEntryRequested{Entry: to.entry}}}
	}
	body, err = json.Marshal(v)
	return command, body, request, err
}

func askDelete(to target) (command string, body []byte, request proto.Message, err error) {
	const reason = "the node was deleted through ZooKeeper"
	var v map[string]string
	switch to.kind {
	case "portal":
		command, v = "portal.unload", map[string]string{"modelName": to.model, "reason": reason}
		request = &model.Event{Body: &model.Event_UnloadRequested{UnloadRequested: &model.UnloadRequested{Reason: reason}}}
	case "saved_models":
		command, v = "portal.removeSavedModel", map[string]string{"model": to.model, "sub": to.sub}
		request = &layout.Event{Body: &layout.Event_RemoveRequested{RemoveRequested: &layout.RemoveRequested{SubGraph: to.sub}}}
	default:
		command, v = "portal.removeLayoutEntry", map[string]string{"layout": to.layout, "entry": to.entry}
		request = &layout.Event{Body: &layout.Event_RemoveEntryRequested{RemoveEntryRequested: &layout.RemoveEntryRequested{Entry: to.entry}}}
	}
	body, err = json.Marshal(v)
	return command, body, request, err
}

// loadOf reads a ModelMeta as Python's reader does: what is missing or null is the
// default, what is unknown is passed over.
func loadOf(name string, data []byte) (*model.Load, error) {
	var m struct {
		ModelName    *string  `json:"model_name"`
		ModelDir     *string  `json:"model_dir"`
		Ckpt         *string  `json:"ckpt"`
		NumShard     *int32   `json:"num_shard"`
		SpecReplicas []string `json:"spec_replicas"`
	}
	if err := json.Unmarshal(bytes.TrimSpace(data), &m); err != nil {
		example := znodedata.ModelMeta{ModelName: name, ModelDir: "/…/exported_models", NumShard: -1, Action: "NONE"}.Bytes()
		return nil, fmt.Errorf("the data is no ModelMeta such as %s: %w", example, err)
	}
	if m.ModelName != nil && *m.ModelName != "" && *m.ModelName != name {
		return nil, fmt.Errorf("the data names model %q, the path %q: write the same name", *m.ModelName, name)
	}
	load := &model.Load{ModelName: name, SpecReplicas: m.SpecReplicas}
	if m.ModelDir != nil {
		load.ModelDir = *m.ModelDir
	}
	if m.Ckpt != nil {
		load.Ckpt = *m.Ckpt
	}
	if m.NumShard != nil {
		load.NumShard = *m.NumShard
	}
	return load, nil
}
