package product

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/monolith-go/monolith/bus/measure"
	"github.com/monolith-go/monolith/internal/host"
	"github.com/monolith-go/monolith/internal/host/auth"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/process/freeport"
	"github.com/monolith-go/monolith/internal/wire/rowwire"
	"github.com/monolith-go/monolith/loadtest/bench"
	"github.com/monolith-go/monolith/projections/zookeeper/client"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// TLSCase is how each port is measured.
type TLSCase struct {
	Callers, Batch int           // of predictions and look-ups
	Each           time.Duration // of a pass
	Events         int           // appended in a pass
	Rounds         int
	Target         float64 // of the rate in clear text
}

// TLSCases are those of a full run: 1x, 10x and 100x of the work of a call.
var TLSCases = []TLSCase{
	{Callers: 8, Batch: 1, Each: time.Second, Events: 2000, Rounds: 3, Target: 0.8},
	{Callers: 8, Batch: 10, Each: time.Second, Events: 20_000, Rounds: 3, Target: 0.8},
	{Callers: 8, Batch: 100, Each: time.Second, Events: 20_000, Rounds: 3, Target: 0.8},
}

// TLS measures each port of a stack under keys of its own, against the same stack in clear text: connections
// last, as clients' do.
func TLS(cases []TLSCase) bench.Benchmark {
	return bench.Benchmark{Name: "tls", About: "calls to each port over TLS, against the same in clear text", Run: func(ctx context.Context, r *bench.Runner) (err error) {
		dir, err := os.MkdirTemp("", "monolith-bench-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		keys := filepath.Join(dir, "keys")
		if err := auth.Init(auth.Config{Dir: keys, Listen: "127.0.0.1:4222", Valid: 24 * time.Hour}, time.Now()); err != nil {
			return err
		}
		files := mtls.Files{Cert: filepath.Join(keys, "portal.pem"), Key: filepath.Join(keys, "portal.key"), CA: filepath.Join(keys, auth.CAFile)}
		sealed, err := openPorts(ctx, files)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, sealed.close()) }()
		clear, err := openPorts(ctx, mtls.Files{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, clear.close()) }()
		for _, c := range cases {
			if err := tlsCase(ctx, r, c, sealed, clear); err != nil {
				return err
			}
		}
		return nil
	}}
}

func tlsCase(ctx context.Context, r *bench.Runner, c TLSCase, sealed, clear *openStack) error {
	ours, err := sealed.passes(ctx, c)
	if err != nil {
		return err
	}
	peer, err := clear.passes(ctx, c)
	if err != nil {
		return err
	}
	for i, p := range ours {
		err := r.Compare(ctx, bench.Comparison{
			Name: fmt.Sprintf("tls/%s %s", p.port, p.work), Baseline: "clear text", Rounds: c.Rounds, Warm: c.Rounds > 1,
			Figures: []bench.Figure{{Unit: p.unit, Better: bench.Higher, Target: c.Target}},
			Ours:    p.pass, Peer: peer[i].pass,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// openStack is a stack, and connections to its ports.
type openStack struct {
	*stackCluster
	conf  *tls.Config // of who calls; nil: clear text
	entry *bytesClient
	http  *http.Transport
	rows  *rowwire.Pool
	zk    *client.Conn
}

func openPorts(ctx context.Context, files mtls.Files) (_ *openStack, err error) {
	port, err := freeport.Find()
	if err != nil {
		return nil, err
	}
	s := &openStack{http: &http.Transport{MaxIdleConnsPerHost: 64}}
	if s.conf, err = files.Load(); err != nil {
		return nil, err
	}
	if s.stackCluster, err = startStack(ctx, host.Ports{TLS: files}, port); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	s.rows = rowwire.NewPool(s.conf)
	by := insecure.NewCredentials()
	if s.conf != nil {
		conf, err := mtls.To(s.conf, anyPort)
		if err != nil {
			return nil, err
		}
		s.http.TLSClientConfig, by = conf, credentials.NewTLS(conf)
	}
	if s.entry, err = dialBytesBy(s.PredictAddr(), by); err != nil {
		return nil, err
	}
	var nc net.Conn
	at := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if s.conf == nil {
		nc, err = net.DialTimeout("tcp", at, startPatience)
	} else {
		nc, err = (&tls.Dialer{Config: s.http.TLSClientConfig}).DialContext(ctx, "tcp", at)
	}
	if err != nil {
		return nil, err
	}
	s.zk, err = client.Open(nc, wire.ConnectRequest{TimeoutMS: 60_000, Password: make([]byte, 16)}, time.Hour)
	return s, err
}

func (s *openStack) close() error {
	var errs []error
	if s.zk != nil {
		errs = append(errs, s.zk.Close())
	}
	if s.entry != nil {
		errs = append(errs, s.entry.close())
	}
	s.http.CloseIdleConnections()
	if s.rows != nil {
		s.rows.Close()
	}
	return errors.Join(append(errs, s.stackCluster.Close())...)
}

// portPass is a pass at one port.
type portPass struct {
	port, work, unit string
	pass             bench.Pass
}

// passes are the same calls to each port, in the same order for every stack.
func (s *openStack) passes(ctx context.Context, c TLSCase) ([]portPass, error) {
	requests, err := predictRequests(s.Model(), c.Batch)
	if err != nil {
		return nil, err
	}
	answer, err := s.entry.call(ctx, requests[0])
	if err == nil {
		err = checkAnswer(answer, c.Batch)
	}
	if err != nil {
		return nil, err
	}
	bodies, err := jsonOf(requests)
	if err != nil {
		return nil, err
	}
	scheme := "http"
	if s.conf != nil {
		scheme = "https"
	}
	web := &http.Client{Transport: s.http}
	rest := restCaller{web, scheme + "://" + s.RESTAddr() + "/v1/models/" + s.Model() + ":predict"}
	lookup, err := s.lookup(ctx, 100*c.Batch)
	if err != nil {
		return nil, err
	}
	calls := func(call func(context.Context, int) error) bench.Pass {
		return func(ctx context.Context) ([]float64, error) {
			got, err := closedLoop(ctx, c.Callers, c.Each, call)
			if err != nil {
				return nil, err
			}
			return got[:1], nil
		}
	}
	batch := fmt.Sprintf("batch=%d,callers=%d", c.Batch, c.Callers)
	return []portPass{
		{"nats", fmt.Sprintf("events=%d,callers=64", c.Events), "events/s", bench.PerSecond(c.Events, func(ctx context.Context) error { return measure.Append(ctx, s.job.Bus, 64, c.Events) })},
		{"rows", fmt.Sprintf("keys=%d,callers=%d", 100*c.Batch, c.Callers), "calls/s", calls(lookup)},
		{"grpc", batch, "calls/s", calls(sized(s.entry, requests, len(answer)))},
		{"rest", batch, "calls/s", calls(func(ctx context.Context, i int) error {
			_, err := rest.call(ctx, bodies[i%len(bodies)])
			return err
		})},
		{"status", fmt.Sprintf("callers=%d,batch=%d", c.Callers, c.Batch), "calls/s", calls(func(ctx context.Context, _ int) error {
			return get(ctx, web, scheme+"://"+s.stack.StatusAddr()+"/livez")
		})},
		{"zk", fmt.Sprintf("window=%d", 8*c.Batch), "requests/s", s.reads(8*c.Batch, c.Each)},
	}, nil
}

// lookup asks a serving shard for rows, of which none need be there.
func (s *openStack) lookup(ctx context.Context, keys int) (func(context.Context, int) error, error) {
	var addr string
	for _, r := range s.job.Replicas(s.Model()) {
		if addr = r.GetRowsAddress(); r.GetTask() == 0 {
			break
		}
	}
	conn, err := s.rows.Get(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("rows at %s: %w", addr, err)
	}
	var ids []int64
	for id := int64(0); len(ids) < keys; id++ {
		if modelspec.ShardOf(id, clusterShards) == 0 {
			ids = append(ids, id)
		}
	}
	return func(ctx context.Context, _ int) error {
		res, err := conn.Lookup(ctx, &rowwire.LookupRequest{Model: s.Model(), Tables: []rowwire.TableIDs{{Table: "user", IDs: ids}}})
		if err == nil && len(res.Values) != 1 {
			err = fmt.Errorf("%d tables are answered, one was asked for", len(res.Values))
		}
		return err
	}, nil
}

// reads has one session read the root, so many requests under way at a time.
func (s *openStack) reads(window int, each time.Duration) bench.Pass {
	return func(ctx context.Context) ([]float64, error) {
		began, n := time.Now(), 0
		for time.Since(began) < each {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			for range window {
				s.zk.Send(wire.OpGetData, (&wire.PathWatch{Path: "/"}).Encode)
			}
			if err := s.zk.Flush(); err != nil {
				return nil, err
			}
			for range window {
				h, _, err := s.zk.Next()
				if err != nil {
					return nil, err
				}
				if h.Err != 0 {
					return nil, fmt.Errorf("the root is answered with error %d", h.Err)
				}
			}
			n += window
		}
		return []float64{float64(n) / time.Since(began).Seconds()}, nil
	}
}

func get(ctx context.Context, c *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, res.Status)
	}
	return nil
}
