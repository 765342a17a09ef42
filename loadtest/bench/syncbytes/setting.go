package syncbytes

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/events/model"
)

// Setting is how the rows of a model go to followers.
type Setting struct {
	Name       string
	Compressor *model.Compressor // of rows; nil: float32
	Every      int               // intervals of the shard that rows wait; 0: none
	Within     *float32          // how far one that waits may be from what followers have; nil: as far as it gets
	Goal       bool              // targets are of it
}

// declare says so of every table of spec.
func (s Setting) declare(spec *model.ModelSpec) *model.ModelSpec {
	spec = proto.CloneOf(spec)
	for _, t := range spec.GetTables() {
		if len(t.GetSegments()) == 0 {
			t.Compressor = s.Compressor
		}
		for _, segment := range t.GetSegments() {
			segment.Compressor = s.Compressor
		}
		if s.Every > 0 || s.Within != nil {
			t.Sync = &model.Sync{IntervalMs: uint64(time.Duration(s.Every) * interval / time.Millisecond), Tolerance: s.Within}
		}
	}
	return spec
}

// String is the setting in a result's name.
func (s Setting) String() string {
	name := s.Name
	if s.Every > 0 {
		name += fmt.Sprintf(", every %d", s.Every)
	}
	if s.Within != nil {
		name += fmt.Sprintf(" within %v", *s.Within)
	}
	return name
}

// The formats that a table may have on its way.
func inHalves() *model.Compressor {
	return &model.Compressor{Kind: &model.Compressor_Fp16{Fp16: &model.Fp16{}}}
}

func inBytes(r float32) *model.Compressor {
	return &model.Compressor{Kind: &model.Compressor_FixedR8{FixedR8: &model.FixedR8{R: proto.Float32(r)}}}
}

func inBits(amplitude float32) *model.Compressor {
	return &model.Compressor{Kind: &model.Compressor_OneBit{OneBit: &model.OneBit{Amplitude: proto.Float32(amplitude)}}}
}
