package ensemble

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const dialWithin = 3 * time.Second

var errLost = errors.New("the session with the ensemble is lost")

// session is the mirror's at the ensemble: it holds the ephemerals. The library resumes
// it over as many connections as it takes; once it cannot be resumed it is lost, and
// stays lost: what the library opens in its place is not used.
type session struct {
	conn    *zk.Conn
	id      int64
	timeout time.Duration
	lost    chan struct{}

	mu      sync.Mutex
	nets    map[net.Conn]bool
	left    bool // nothing is sent or dialled any more
	grace   *time.Timer
	leaving sync.Once
}

// openSession returns once the ensemble has granted one.
func openSession(ctx context.Context, cfg *Config, logger *slog.Logger) (*session, error) {
	s := &session{lost: make(chan struct{}), timeout: cfg.Session, nets: map[net.Conn]bool{}}
	granted := make(chan struct{})
	var conn *zk.Conn
	connected := make(chan struct{}) // conn is set
	lose := sync.OnceFunc(func() { close(s.lost) })
	state := func(e zk.Event) {
		if e.Type != zk.EventSession {
			return
		}
		<-connected
		s.mu.Lock()
		defer s.mu.Unlock()
		switch e.State {
		case zk.StateHasSession:
			if s.grace != nil {
				s.grace.Stop()
				s.grace = nil
			}
			switch id := conn.SessionID(); {
			case s.id == 0:
				s.id = id
				close(granted)
			case s.id != id: // another one in its place
				lose()
			}
		case zk.StateExpired, zk.StateAuthFailed:
			lose()
		case zk.StateDisconnected:
			// The ensemble may be gone for good, and then nobody says that it has expired.
			if s.id != 0 && s.grace == nil {
				s.grace = time.AfterFunc(s.timeout*4/3, lose)
			}
		}
	}
	conn, events, err := zk.Connect(cfg.Servers, cfg.Session,
		zk.WithLogInfo(false), zk.WithLogger(quiet{logger}), zk.WithEventCallback(state), zk.WithDialer(s.dialer(cfg)), zk.WithHostProvider(&names{}))
	if err != nil {
		return nil, err
	}
	s.conn = conn
	close(connected)
	go func() {
		for range events { // the callback has them all
		}
	}()
	wait, cancel := context.WithTimeout(ctx, max(cfg.Session, 2*dialWithin))
	defer cancel()
	select {
	case <-granted:
	case <-wait.Done():
		s.leave()
		return nil, fmt.Errorf("no session at %v: %w", cfg.Servers, wait.Err())
	}
	for _, a := range cfg.Auth {
		if _, err := call(ctx, s, func() (none struct{}, err error) { return none, conn.AddAuth(a.Scheme, a.Secret) }); err != nil {
			s.leave()
			return nil, fmt.Errorf("show the %s identity: %w", a.Scheme, err)
		}
	}
	return s, nil
}

// dialer remembers connections, so that leave can cut them.
func (s *session) dialer(cfg *Config) zk.Dialer {
	return func(network, addr string, timeout time.Duration) (net.Conn, error) {
		c, err := cfg.Dial(network, addr, timeout)
		if err != nil {
			return nil, err
		}
		s.mu.Lock()
		if s.left {
			s.mu.Unlock()
			return nil, errors.Join(net.ErrClosed, c.Close())
		}
		clear(s.nets) // the library uses one at a time
		s.nets[c] = true
		s.mu.Unlock()
		if c, err = cfg.secure(c, addr); err != nil {
			return nil, err
		}
		return &prompt{Conn: c, within: min(dialWithin, max(cfg.Session/6, 500*time.Millisecond))}, nil
	}
}

// leave gives the session up without ending it: what it holds stays until it expires,
// so that a successor can take it over. The library's own Close would empty the tree.
func (s *session) leave() {
	s.leaving.Do(func() {
		s.mu.Lock()
		s.left = true
		for c := range s.nets {
			_ = c.Close()
		}
		if s.grace != nil {
			s.grace.Stop()
		}
		s.mu.Unlock()
		s.conn.Close()
	})
}

// call runs one request of the library, which knows no deadlines. When it takes too long
// the session is left, which also ends the request; what it answers then nobody sees.
func call[T any](ctx context.Context, s *session, do func() (T, error)) (none T, err error) {
	type outcome struct {
		answer T
		err    error
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	done := make(chan outcome, 1)
	go func() {
		answer, err := do()
		done <- outcome{answer, err}
	}()
	select {
	case o := <-done:
		return o.answer, o.err
	case <-s.lost:
		s.leave()
		return none, errLost
	case <-ctx.Done():
		s.leave()
		return none, fmt.Errorf("%w: no answer: %w", errLost, ctx.Err())
	}
}

// multi does all operations or none. failed is the one that stopped it, -1 when it is
// not known whether anything was done.
func (s *session) multi(ctx context.Context, ops []any) (results []zk.MultiResponse, failed int, err error) {
	results, err = call(ctx, s, func() ([]zk.MultiResponse, error) { return s.conn.Multi(ops...) })
	if err == nil {
		return results, 0, nil
	}
	for i, r := range results {
		// Those behind the culprit, and in some versions those before it, say that
		// they were not tried.
		if r.Error != nil && !errors.Is(r.Error, zk.ErrUnknown) && r.Error.Error() != notTried {
			return results, i, r.Error
		}
	}
	return results, -1, err
}

// notTried is how the library puts RuntimeInconsistency, which it does not know.
const notTried = "unknown error: -2"

// ensure makes the node and its parents, where they are not there.
func (s *session) ensure(ctx context.Context, path string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		_, err := call(ctx, s, func() (string, error) {
			return s.conn.Create(path[:i], []byte{}, 0, zk.WorldACL(zk.PermAll))
		})
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("create %s: %w", path[:i], err)
		}
	}
	return nil
}

type quiet struct{ to *slog.Logger }

func (q quiet) Printf(format string, args ...any) {
	q.to.Debug("zookeeper client", "said", fmt.Sprintf(format, args...))
}
