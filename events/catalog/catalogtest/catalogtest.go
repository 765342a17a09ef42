// Package catalogtest makes events for tests of whoever takes them: by reflection over the
// catalogue, the largest and the ugliest that each fact's rules allow.
package catalogtest

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/catalog"
	"github.com/monolith-go/monolith/events/model"
)

// Case is an event that is valid on its subject.
type Case struct {
	Name    string // what is special about it
	Subject events.Subject
	Event   proto.Message
}

// Golden is one released event of each kind there is.
func Golden(t testing.TB) (cases []Case) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(here), "../testdata/golden/*.tsv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("golden events: %v, %v", files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			subject, body, _ := strings.Cut(strings.TrimSpace(line), "\t")
			m, err := catalog.Decode(events.Subject(subject), false, []byte(body))
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			cases = append(cases, Case{"golden " + catalog.Type(m), events.Subject(subject), m})
		}
	}
	return cases
}

// Extreme makes of each golden event those that lie at the edge of what is valid: each
// text, list and map as large as it may be, all numbers as large and as small, all texts
// full of what needs to be escaped, or empty, and the aggregate under odd names.
func Extreme(t testing.TB) (cases []Case) {
	t.Helper()
	golden := Golden(t)
	for _, g := range golden {
		if outdone(g, golden) {
			continue
		}
		add := func(what string, subject events.Subject, m proto.Message) {
			if !proto.Equal(m, g.Event) {
				cases = append(cases, Case{g.Name + ", " + what, subject, m})
			}
		}
		for i, p := range places(g.Event.ProtoReflect()) {
			for _, filler := range p.fillers() {
				m := proto.Clone(g.Event)
				p := places(m.ProtoReflect())[i]
				n := largest(func(n int) bool { p.grow(n, filler); return near(g.Subject, m) })
				p.grow(n, filler)
				for size := encoded(g.Subject, m); n > 1 && size > catalog.MaxBytes; size = encoded(g.Subject, m) {
					n = min(n-1, n*99/100*catalog.MaxBytes/size)
					p.grow(n, filler)
				}
				if n > 1 {
					add(fmt.Sprintf("%s is %d of %q", p.name, n, filler), g.Subject, m)
				}
			}
		}
		for _, text := range []string{"", "é\u2028\u0001\"\\\U0001F600<&>", "../@1/x"} {
			m := proto.Clone(g.Event)
			for _, p := range places(m.ProtoReflect()) {
				p.try(g.Subject, m, text)
			}
			add(fmt.Sprintf("texts %q", text), g.Subject, m)
		}
		for _, most := range []bool{true, false} {
			m := proto.Clone(g.Event)
			for _, p := range places(m.ProtoReflect()) {
				p.extreme(g.Subject, m, most)
			}
			add(fmt.Sprintf("numbers at their end, the greatest: %v", most), g.Subject, m)
		}
		for _, filler := range []string{"é", "\u0001", "\U0001F600\""} {
			var subject events.Subject
			var m proto.Message
			n := largest(func(n int) bool {
				subject, m = renamed(g, strings.Repeat(filler, n))
				return near(subject, m)
			})
			if subject, m = renamed(g, strings.Repeat(filler, n)); n > 0 && valid(subject, m) {
				add(fmt.Sprintf("named %d of %q", n, filler), subject, m)
			}
		}
	}
	return cases
}

// valid says whether an owner could append m.
func valid(subject events.Subject, m proto.Message) bool {
	return encoded(subject, m) <= catalog.MaxBytes
}

// encoded is how many bytes the event has in the log, far too many if it is not valid.
func encoded(subject events.Subject, m proto.Message) int {
	data, err := catalog.Encode(subject, m)
	if err != nil {
		return 2 * catalog.MaxBytes
	}
	return len(data)
}

// outdone says whether a larger event of the same kind is there whose texts, lists and maps
// are this one's too; of a model's spec it takes long to make and to read all of them twice.
func outdone(g Case, golden []Case) bool {
	_, spec := g.Event.(*model.Event)
	return spec && slices.ContainsFunc(golden, func(o Case) bool {
		return catalog.Type(o.Event) == catalog.Type(g.Event) && o.Event.ProtoReflect().Descriptor() == g.Event.ProtoReflect().Descriptor() &&
			proto.Size(o.Event) > proto.Size(g.Event)
	})
}

// near says as much in less time, but for what JSON makes of the event beyond the bytes
// of its texts.
func near(subject events.Subject, m proto.Message) bool {
	p, err := subject.Parse()
	return err == nil && proto.Size(m) <= catalog.MaxBytes && m.(catalog.Validator).Validate(p.Aggregate) == nil
}

// largest is the greatest n, or less by a hundredth, for which ok holds, if it holds up to
// it and no further.
func largest(ok func(n int) bool) int {
	low, high := 0, 1
	for ok(high) { // not from the other end: making what is far too large takes long
		low, high = high, 2*high
	}
	for high-low > 1+high/100 {
		if mid := (low + high) / 2; ok(mid) {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// renamed is a case under another name, which is the first step of its aggregate behind
// the fixed ones.
func renamed(g Case, name string) (events.Subject, proto.Message) {
	p, _ := g.Subject.Parse()
	kind, rest, fixed := strings.Cut(p.Aggregate, "/")
	if fixed = fixed && (kind == "saved_models" || kind == "layouts"); !fixed {
		rest = p.Aggregate
	}
	old, _, _ := strings.Cut(rest, "/")
	m := proto.Clone(g.Event)
	for _, at := range places(m.ProtoReflect()) {
		if at.text != nil && at.text() == old {
			at.set(protoreflect.ValueOfString(name))
		}
	}
	aggregate := name + strings.TrimPrefix(rest, old)
	if fixed {
		aggregate = kind + "/" + aggregate
	}
	subject := events.Join(p.BZID, p.Context, aggregate)
	if p.Request {
		subject = subject.Request()
	}
	return subject, m
}

// place is one value inside of a message, or one list or map.
type place struct {
	name  string
	field protoreflect.FieldDescriptor
	set   func(protoreflect.Value) // of a value
	value func() protoreflect.Value
	text  func() string     // of a text
	list  protoreflect.List // of a list that has an element
	dict  protoreflect.Map  // of a map that has an element
}

// places are all of a message, in an order that depends on the message alone. Fields that
// are not set are places too, but for messages.
func places(m protoreflect.Message) (all []place) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		name := string(f.Name())
		switch {
		case f.IsMap():
			d := m.Get(f).Map()
			if d.Len() > 0 {
				all = append(all, place{name: name, field: f, dict: d})
			}
		case f.IsList():
			l := m.Get(f).List()
			if l.Len() == 0 {
				continue
			}
			all = append(all, place{name: name, field: f, list: l})
			for j := range l.Len() {
				if f.Kind() == protoreflect.MessageKind {
					all = append(all, places(l.Get(j).Message())...)
					continue
				}
				all = append(all, scalar(name, f, func() protoreflect.Value { return l.Get(j) }, func(v protoreflect.Value) { l.Set(j, v) }))
			}
		case f.Kind() == protoreflect.MessageKind:
			if m.Has(f) {
				all = append(all, places(m.Get(f).Message())...)
			}
		case f.ContainingOneof() == nil || m.Has(f):
			all = append(all, scalar(name, f, func() protoreflect.Value { return m.Get(f) }, func(v protoreflect.Value) { m.Set(f, v) }))
		}
	}
	return all
}

func scalar(name string, f protoreflect.FieldDescriptor, value func() protoreflect.Value, set func(protoreflect.Value)) place {
	p := place{name: name, field: f, value: value, set: set}
	if f.Kind() == protoreflect.StringKind {
		p.text = func() string { return value().String() }
	}
	return p
}

// fillers are what the place can be made large with.
func (p place) fillers() []string {
	switch {
	case p.list != nil && p.field.Kind() == protoreflect.StringKind:
		return []string{"elements", strings.Repeat("é", 200)}
	case p.list != nil || p.dict != nil:
		return []string{"elements"}
	case p.field.Kind() == protoreflect.StringKind:
		return []string{"é", "\u0001"}
	case p.field.Kind() == protoreflect.BytesKind:
		return []string{"\xff"}
	}
	return nil
}

// grow makes the place n fillers, or elements, large.
func (p place) grow(n int, filler string) {
	switch {
	case p.list != nil:
		first := p.list.Get(0)
		if filler != "elements" {
			first = protoreflect.ValueOfString(filler)
			p.list.Truncate(0)
		}
		p.list.Truncate(min(p.list.Len(), max(n, 1)))
		for p.list.Len() < n {
			p.list.Append(first)
		}
	case p.dict != nil:
		p.growMap(n)
	case p.field.Kind() == protoreflect.BytesKind:
		p.set(protoreflect.ValueOfBytes([]byte(strings.Repeat(filler, n))))
	default:
		keep, _, colon := strings.Cut(p.text(), ":") // a host, or a model
		switch {
		case colon:
			keep += ":"
		case strings.HasPrefix(p.text(), "/"): // an absolute path stays one
			keep = "/"
		default:
			keep = ""
		}
		p.set(protoreflect.ValueOfString(keep + strings.Repeat(filler, n)))
	}
}

func (p place) growMap(n int) {
	var some protoreflect.Value
	p.dict.Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { some = v; return false })
	p.dict.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool { p.dict.Clear(k); return true })
	for i := range max(n, 1) {
		key := protoreflect.ValueOfString(fmt.Sprintf("é%d", i))
		if p.field.MapKey().Kind() == protoreflect.Int32Kind {
			key = protoreflect.ValueOfInt32(int32(i))
		}
		p.dict.Set(key.MapKey(), some)
	}
}

// try sets a text if the event stays valid.
func (p place) try(subject events.Subject, m proto.Message, text string) {
	if p.text == nil {
		return
	}
	was := p.text()
	if p.set(protoreflect.ValueOfString(text)); !valid(subject, m) {
		p.set(protoreflect.ValueOfString(was))
	}
}

// extreme sets a number to its end if the event stays valid.
func (p place) extreme(subject events.Subject, m proto.Message, most bool) {
	if p.set == nil {
		return
	}
	end := map[protoreflect.Kind][2]protoreflect.Value{
		protoreflect.Int32Kind:    {protoreflect.ValueOfInt32(math.MinInt32), protoreflect.ValueOfInt32(math.MaxInt32)},
		protoreflect.Int64Kind:    {protoreflect.ValueOfInt64(math.MinInt64), protoreflect.ValueOfInt64(math.MaxInt64)},
		protoreflect.Sfixed64Kind: {protoreflect.ValueOfInt64(math.MinInt64), protoreflect.ValueOfInt64(math.MaxInt64)},
		protoreflect.Uint32Kind:   {protoreflect.ValueOfUint32(0), protoreflect.ValueOfUint32(math.MaxUint32)},
		protoreflect.Uint64Kind:   {protoreflect.ValueOfUint64(0), protoreflect.ValueOfUint64(math.MaxUint64)},
		protoreflect.FloatKind:    {protoreflect.ValueOfFloat32(-math.MaxFloat32), protoreflect.ValueOfFloat32(float32(math.NaN()))},
		protoreflect.DoubleKind:   {protoreflect.ValueOfFloat64(-math.MaxFloat64), protoreflect.ValueOfFloat64(math.MaxFloat64)},
	}
	i := 0
	if most {
		i = 1
	}
	ends, number := end[p.field.Kind()]
	if !number {
		return
	}
	was := p.value()
	if p.set(ends[i]); !valid(subject, m) {
		p.set(was)
	}
}
