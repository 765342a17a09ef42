package rowwire

import (
	"bufio"
	"bytes"
	"context"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/monolith-go/monolith/internal/testenv/wait"
)

// versionOf answers a lookup with the version and the job that it was asked for.
func versionOf() echo {
	return echo{lookup: func(_ context.Context, r *LookupRequest) (*LookupResponse, error) {
		if r.Job != "" && r.Job != "job" {
			return nil, Errorf(NotFound, "version %d is of another job", r.Version)
		}
		return &LookupResponse{Version: r.Version}, nil
	}}
}

func TestALookupNamesItsVersion(t *testing.T) {
	addr, _ := serve(t, "127.0.0.1:0", versionOf(), Options{})
	c := dial(t, addr)
	for _, r := range []*LookupRequest{{Model: "m"}, {Model: "m", Version: 7, Job: "job"}, {Model: "m"}} { // the server decodes into memory of the last
		res, err := c.Lookup(soon(t), r)
		if err != nil || res.Version != r.Version {
			t.Errorf("asked for version %d: %+v, %v", r.Version, res, err)
		}
	}
	if _, err := c.Lookup(soon(t), &LookupRequest{Model: "m", Version: 7, Job: "other"}); CodeOf(err) != NotFound {
		t.Errorf("version of another job: %v", err)
	}
}

func TestAVersionTravelsOnlyWhereItIsNamed(t *testing.T) {
	plain := encoded(t, &LookupRequest{Model: "movie", Shard: 3, Tables: []TableIDs{{"user", []int64{1, -2}}}})
	named := &LookupRequest{Model: "movie", Shard: 3, Tables: []TableIDs{{"user", []int64{1, -2}}}, Version: 9, Job: "j"}
	b := encoded(t, named)
	if !bytes.HasPrefix(b, plain) || len(b) != len(plain)+8+2+1 {
		t.Errorf("the bytes before the version changed: %x, %x", plain, b)
	}
	got := new(LookupRequest)
	if err := got.decode(&decoder{b: b}); err != nil || !reflect.DeepEqual(got, named) {
		t.Errorf("%+v, %v", got, err)
	}
	for n := len(plain) + 1; n < len(b); n++ {
		if err := new(LookupRequest).decode(&decoder{b: b[:n]}); CodeOf(err) != Invalid {
			t.Errorf("cut to %d of %d bytes: %v", n, len(b), err)
		}
	}
	zero := append(bytes.Clone(plain), make([]byte, 10)...)
	for name, bad := range map[string][]byte{"zero version": zero, "more behind": append(b, 0)} {
		if err := new(LookupRequest).decode(&decoder{b: bad}); CodeOf(err) != Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A peer of the protocol before versions is answered as it ever was.
func TestAnOlderClientIsUnderstood(t *testing.T) {
	addr, _ := serve(t, "127.0.0.1:0", echo{dim: 1}, Options{})
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(wait.Patience))
	r := bufio.NewReader(nc)
	if h, err := greet(nc, r, 2); err != nil || h.Version != 2 {
		t.Fatalf("hello of version 2: %+v, %v", h, err)
	}
	b, err := frame(opLookup, 1, 1000, lookupOf(5))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.Write(*b); err != nil {
		t.Fatal(err)
	}
	op, id, _, payload, err := readFrame(r)
	var res LookupResponse
	if err != nil || op != opLookup|opResponse || id != 1 || res.decode(&decoder{b: payload}) != nil || res.Values[0][0] != 5 {
		t.Fatalf("op %d, id %d, %+v, %v", op, id, res, err)
	}
}

// A server of the protocol before versions is asked all that it can answer; what it
// cannot is refused on this side, in words.
func TestAnOlderServerIsAskedWhatItKnows(t *testing.T) {
	ln, err := Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			r := bufio.NewReader(nc)
			_, _, _, payload, err := readFrame(r)
			var h hello
			if err != nil || h.decode(&decoder{b: payload}) != nil {
				_ = nc.Close()
				continue
			}
			answer, _ := frame(opHello|opResponse, 0, -1, &hello{Magic: magic, Version: 2, InFlight: 1})
			if h.Version != 2 {
				answer, _ = frame(opError, 0, -1, Errorf(Invalid, "the client speaks row protocol version %d, this server 2: upgrade the older one", h.Version))
			}
			_, _ = nc.Write(*answer)
			if h.Version != 2 {
				_ = nc.Close()
				continue
			}
			for {
				_, id, _, payload, err := readFrame(r)
				if err != nil {
					_ = nc.Close()
					break
				}
				var q LookupRequest
				if err := q.decode(&decoder{b: payload[4:]}); err != nil || q.versioned() {
					t.Errorf("the old server was sent %+v, %v", q, err)
				}
				answer, _ := frame(opLookup|opResponse, id, -1, &LookupResponse{Step: 3})
				_, _ = nc.Write(*answer)
			}
		}
	}()
	c := dial(t, ln.Addr().String())
	if res, err := c.Lookup(soon(t), lookupOf(1)); err != nil || res.Step != 3 {
		t.Errorf("a lookup that names no version: %+v, %v", res, err)
	}
	if _, err := c.Lookup(soon(t), &LookupRequest{Model: "m", Version: 1}); CodeOf(err) != NotFound || !strings.Contains(err.Error(), "upgrade it") {
		t.Errorf("a lookup that names one: %v", err)
	}
}

// What is said of bands and parts travels behind what was there before, and only where there
// is something to say.
func TestBandsTravelOnlyWhereThereAreSome(t *testing.T) {
	dense := []NamedTensor{{Name: "k", Values: []float32{1}}, {Name: "l", Values: []float32{2, 3}}}
	later := []NamedTensor{dense[0], {Name: "l", At: 7, Values: []float32{2, 3}}}
	for name, m := range map[string]struct{ plain, banded message }{
		"apply":    {&ApplyRequest{Job: "j", To: 1, Dense: dense}, &ApplyRequest{Job: "j", To: 1, Dense: later}},
		"part":     {&ApplyRequest{Job: "j", To: 1}, &ApplyRequest{Job: "j", To: 1, Parts: 2}},
		"request":  {&DenseRequest{Job: "j", Names: []string{"l"}, At: []uint32{0}}, &DenseRequest{Job: "j", Names: []string{"l"}, At: []uint32{7}}},
		"response": {&DenseResponse{Step: 1, Tensors: dense}, &DenseResponse{Step: 1, Tensors: later}},
	} {
		plain, banded := encoded(t, m.plain), encoded(t, m.banded)
		if !bytes.HasPrefix(banded, plain) || len(banded) == len(plain) {
			t.Errorf("%s: the bytes before the bands changed: %x, %x", name, plain, banded)
		}
	}
	for _, b := range [][]byte{
		append(encoded(t, &ApplyRequest{Job: "j", To: 1, Dense: dense}), make([]byte, 8+10)...),
		append(encoded(t, &DenseRequest{Job: "j", Names: []string{"l"}}), make([]byte, 5)...),
		append(encoded(t, &DenseResponse{Tensors: dense}), make([]byte, 10)...),
	} {
		for _, m := range []codec{new(ApplyRequest), new(DenseRequest), new(DenseResponse)} {
			if err := m.decode(&decoder{b: b}); CodeOf(err) != Invalid {
				t.Errorf("%T takes bands that say nothing: %v", m, err)
			}
		}
	}
}

// A client of the protocol before bands is told why it cannot have them.
func TestAnOlderClientIsRefusedBands(t *testing.T) {
	addr, _ := serve(t, "127.0.0.1:0", bandsOf{at: 5}, Options{})
	for version, ok := range map[uint16]bool{2: false, 3: false, 4: true} {
		c, err := dialVersion(context.Background(), addr, nil, version)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		res, err := c.Dense(soon(t), &DenseRequest{Job: "j"})
		if (err == nil) != ok || !ok && (CodeOf(err) != NotFound || !strings.Contains(err.Error(), "upgrade it")) {
			t.Errorf("version %d: %+v, %v", version, res, err)
		}
		_, err = c.Apply(soon(t), &ApplyRequest{Job: "j", To: 1, Parts: 2})
		if (err == nil) != ok || !ok && (CodeOf(err) != Unavailable || !strings.Contains(err.Error(), "upgrade it")) {
			t.Errorf("version %d, a part: %v", version, err)
		}
		if _, err = c.Apply(soon(t), &ApplyRequest{Job: "j", To: 1}); err != nil {
			t.Errorf("version %d, an apply as ever: %v", version, err)
		}
	}
}

// bandsOf answers one variable's band.
type bandsOf struct {
	echo
	at uint32
}

func (b bandsOf) Dense(context.Context, *DenseRequest) (*DenseResponse, error) {
	return &DenseResponse{Tensors: []NamedTensor{{Name: "k", At: b.at, Values: []float32{1}}}}, nil
}
