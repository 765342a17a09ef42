package role

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/bus"
)

// Deadline bounds the work of one command: a bus that is away answers UNAVAILABLE then.
const Deadline = 5 * time.Second

// Handler bounds h by Deadline and gives every error the code the caller needs.
func Handler(h bus.Handler) bus.Handler {
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		ctx, cancel := context.WithTimeout(ctx, Deadline)
		defer cancel()
		reply, err := h(ctx, payload)
		if err != nil {
			return nil, bus.Refusal(err)
		}
		return reply, nil
	}
}

// Decode reads a command's body as protojson, in either spelling of field names. An
// empty body is an empty message. example completes the refusal.
func Decode(payload []byte, m proto.Message, example string) error {
	if len(payload) == 0 {
		return nil
	}
	if err := protojson.Unmarshal(payload, m); err != nil {
		return bus.Refuse(bus.CodeInvalid, "the body does not decode: %s: send a body like %s", plain(err), example)
	}
	return nil
}

// DecodeJSON is Decode for bodies that are no message; unknown keys are refused.
func DecodeJSON(payload []byte, v any, example string) error {
	if len(payload) == 0 {
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(payload)))
	d.DisallowUnknownFields()
	err := d.Decode(v)
	if err == nil && d.More() {
		err = errors.New("something follows the object")
	}
	if err != nil {
		return bus.Refuse(bus.CodeInvalid, "the body does not decode: %v: send a body like %s", err, example)
	}
	return nil
}

// plain makes an error of protojson the same on every run: it varies a space on purpose.
func plain(err error) string {
	return strings.TrimPrefix(strings.ReplaceAll(err.Error(), "\u00a0", " "), "proto: ")
}

// Seq is the answer of a command that led to the fact at seq.
func Seq(seq uint64) []byte { return fmt.Appendf(nil, `{"seq":%d}`, seq) }

// View is a live view that can be asked where it stands.
type View interface {
	Hash() (seq uint64, hash string)
}

// State answers <role>.state: {"view":"fleet"} gives {"seq":99,"hash":"…"}.
func State(views map[string]View) bus.Handler {
	names := slices.Sorted(maps.Keys(views))
	example := fmt.Sprintf(`{"view":%q}`, names[0])
	return Handler(func(_ context.Context, payload []byte) ([]byte, error) {
		var ask struct {
			View string `json:"view"`
		}
		if err := DecodeJSON(payload, &ask, example); err != nil {
			return nil, err
		}
		if ask.View == "" && len(names) == 1 {
			ask.View = names[0]
		}
		v, ok := views[ask.View]
		if !ok {
			return nil, bus.Refuse(bus.CodeNotFound, "view %q is not kept here: ask for %s", ask.View, strings.Join(names, ", "))
		}
		seq, hash := v.Hash()
		return json.Marshal(struct {
			Seq  uint64 `json:"seq"`
			Hash string `json:"hash"`
		}{seq, hash})
	})
}
