package controller

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/protobuf/encoding/prototext"

	"github.com/monolith-go/monolith/events/training"
	"github.com/monolith-go/monolith/internal/compat/controllerpb"
	"github.com/monolith-go/monolith/internal/durable"
)

// The files by which a job is told what to do, in its folder, and by which it answers.
const (
	ActionFile   = "monolith_action"
	ResponseFile = "monolith_action_response"
)

const maxAction = 64 << 10 // bytes: what is larger is answered as what cannot be read

// Actions looks for an action file, and has what it asks carried out.
type Actions struct {
	Dir   string
	Every time.Duration
	// Request publishes a request of the job. One whose id was published before changes nothing.
	Request func(ctx context.Context, id string, e *training.Event) error
	Log     *slog.Logger
}

// Run looks every so often until ctx ends.
func (a *Actions) Run(ctx context.Context) {
	t := time.NewTicker(a.Every)
	defer t.Stop()
	for {
		if err := a.Look(ctx); err != nil && ctx.Err() == nil {
			a.Log.Warn("an action file is not carried out yet", "dir", a.Dir, "err", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}

// Look carries out the action file that is there, if one is:
//
//	publish the request | its id follows from the file: after a crash here it is published again, and taken once
//	write the response  | after a crash here both are done again
//	remove the file
func (a *Actions) Look(ctx context.Context) error {
	path := filepath.Join(a.Dir, ActionFile)
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAction+1))
	info, serr := f.Stat()
	if err := errors.Join(err, serr, f.Close()); err != nil {
		return err
	}
	answer := "OK"
	e, refused := Action(text)
	if refused != nil {
		answer = refused.Error()
	} else {
		sum := sha256.Sum256(fmt.Appendf(bytes.Clone(text), "\n%d", info.ModTime().UnixNano()))
		if err := a.Request(ctx, "action-"+hex.EncodeToString(sum[:16]), e); err != nil {
			return err
		}
		a.Log.Info("an action file is carried out", "action", string(text))
	}
	if err := durable.Swap(filepath.Join(a.Dir, ResponseFile), 0o644, []byte(answer)); err != nil {
		return err
	}
	return os.Remove(path)
}

// Action is the request that an action file's text asks for. An error is what to answer.
func Action(text []byte) (*training.Event, error) {
	if len(text) > maxAction {
		return nil, fmt.Errorf("the action has more than %d bytes: write one like action: TRIGGER_SAVE", maxAction)
	}
	var p controllerpb.ControllerHooksProto
	if err := prototext.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("the action cannot be read: %w: write one like action: TRIGGER_SAVE", err)
	}
	const reason = "by the file " + ActionFile
	switch p.GetAction() {
	case controllerpb.ControllerHooksProto_TRIGGER_SAVE:
		return &training.Event{Body: &training.Event_CheckpointRequested{CheckpointRequested: &training.CheckpointRequested{Reason: reason}}}, nil
	case controllerpb.ControllerHooksProto_STOP:
		return &training.Event{Body: &training.Event_StopRequested{StopRequested: &training.StopRequested{Reason: reason}}}, nil
	}
	return nil, fmt.Errorf("the action %v is none: write TRIGGER_SAVE or STOP", p.GetAction())
}
