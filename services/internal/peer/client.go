package peer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/monolith-go/monolith/internal/model/checkpoint"
	"github.com/monolith-go/monolith/internal/mtls"
	"github.com/monolith-go/monolith/internal/retry"
)

// Source is a host that may have what is wanted.
type Source struct{ Host, Address string }

// Client fetches from other hosts.
type Client struct {
	conf   Config
	http   *http.Client
	beyond sync.Once // says which sources are not asked
}

// Config of a client; zero values take the defaults named here.
type Config struct {
	TLS      *tls.Config // shown to sources and asked of them; nil: plain text
	Near     bool        // sources on this machine alone are asked, for nothing protects what is sent
	Log      *slog.Logger
	Fetched  prometheus.Counter       // bytes of files
	Faults   *prometheus.CounterVec   // by reason: unreachable, corrupt
	Stall    time.Duration            // a source that sends nothing for so long is given up. Default 10 s
	PerPiece time.Duration            // one that has not sent a piece in this time, too. Default 2 min
	Listing  time.Duration            // how long a listing may take, which reads what no manifest names. Default 5 min
	Piece    int64                    // bytes that are asked for at a time. Default 2 MiB
	Pause    time.Duration            // first one behind a failure. Default 100 ms
	Gave     func(Source, int64, int) // of each piece: its size and its file; nil: nobody looks
}

const (
	maxSources = 8
	// straggle is how long other sources are waited for once one has answered.
	straggle = 2 * time.Second
)

// NewClient makes a client; Close ends its idle connections.
func NewClient(c Config) *Client {
	for _, d := range []struct {
		v   *time.Duration
		def time.Duration
	}{{&c.Stall, 10 * time.Second}, {&c.PerPiece, 2 * time.Minute}, {&c.Listing, 5 * time.Minute}, {&c.Pause, 100 * time.Millisecond}} {
		if *d.v == 0 {
			*d.v = d.def
		}
	}
	c.Piece = cmp.Or(c.Piece, 2<<20)
	t := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: perSource, IdleConnTimeout: 30 * time.Second,
		DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, TLSHandshakeTimeout: 5 * time.Second}
	if c.TLS != nil {
		t.DialTLSContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conf, err := mtls.To(c.TLS, address)
			if err != nil {
				return nil, err
			}
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			return (&tls.Dialer{Config: conf}).DialContext(ctx, network, address)
		}
	}
	return &Client{conf: c, http: &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error {
		return errors.New("a source must not send others elsewhere")
	}}}
}

// Close ends idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// get asks a source. The caller closes the body.
func (c *Client) get(ctx context.Context, s Source, path string, q url.Values, header http.Header) (*http.Response, error) {
	scheme := "http"
	if c.conf.TLS != nil {
		scheme = "https"
	}
	u := url.URL{Scheme: scheme, Host: s.Address, Path: path, RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	resp, err := c.http.Do(req)
	if err != nil {
		if x := new(url.Error); errors.As(err, &x) {
			err = x.Err // without the address, which stands before it
		}
		return nil, fmt.Errorf("%s (%s): %w", s.Host, s.Address, err)
	}
	return resp, nil
}

// errBusy is of a source that sends to enough others now.
var errBusy = errors.New("it is busy")

// refused is an answer that is not the one asked for.
func refused(s Source, resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 200))
	err := fmt.Errorf("%s (%s): %s: %.200s", s.Host, s.Address, resp.Status, strings.ToValidUTF8(strings.TrimSpace(string(text)), "?"))
	switch resp.StatusCode {
	case http.StatusNotFound:
		return fmt.Errorf("%w: %w", ErrNotHere, err)
	case http.StatusServiceUnavailable:
		return fmt.Errorf("%w: %w", errBusy, err)
	}
	return err
}

// Offer is what sources have, who all say the same.
type Offer struct {
	Listing
	Sources []Source
	ask     Ask
}

// Digest tells offers of different content apart.
func (o Offer) Digest() string { return o.digest() }

// Size is how many bytes the files have.
func (o Offer) Size() uint64 { return uint64(o.size()) }

// Find asks sources for what they have of ask. Where exports are named, what has another
// identity is no answer; else what most sources say counts, of as many the first.
func (c *Client) Find(ctx context.Context, ask Ask, exports []string, sources []Source) (Offer, error) {
	type answer struct {
		source Source
		l      Listing
		err    error
	}
	answers := make(chan answer, len(sources))
	ctx, cancel := context.WithTimeout(ctx, c.conf.Listing)
	defer cancel()
	for _, s := range sources {
		go func() {
			l, err := c.list(ctx, s, ask, exports)
			answers <- answer{s, l, err}
		}()
	}
	var offers []Offer
	var errs []error
	var late <-chan time.Time
	waiting := len(sources)
	for waiting > 0 {
		select {
		case a := <-answers:
			waiting--
			if a.err != nil {
				errs = append(errs, a.err)
				continue
			}
			if late == nil {
				t := time.NewTimer(straggle)
				defer t.Stop()
				late = t.C
			}
			i := slices.IndexFunc(offers, func(o Offer) bool { return o.digest() == a.l.digest() })
			if i < 0 {
				i, offers = len(offers), append(offers, Offer{Listing: a.l, ask: ask})
			}
			offers[i].Sources = append(offers[i].Sources, a.source)
		case <-late:
			cancel() // those who have not answered
			late = nil
			for ; waiting > 0; waiting-- {
				<-answers
			}
		}
	}
	if len(offers) == 0 {
		return Offer{}, errors.Join(errs...)
	}
	best := 0
	for i, o := range offers {
		if len(o.Sources) > len(offers[best].Sources) {
			best = i
		}
	}
	offers[best].Sources = offers[best].Sources[:min(len(offers[best].Sources), maxSources)]
	return offers[best], nil
}

// list is what one source says, held against its manifest: of its files' checksums none is taken
// at its word that the manifest tells otherwise.
func (c *Client) list(ctx context.Context, s Source, ask Ask, exports []string) (l Listing, err error) {
	resp, err := c.get(ctx, s, listingPath, ask.query(), nil)
	if err != nil {
		if ctx.Err() == nil { // else others were quicker
			c.conf.Faults.WithLabelValues(unreachable).Inc()
		}
		return l, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return l, refused(s, resp)
	}
	if l, err = decodeListing(resp.Body); ctx.Err() != nil {
		return l, ctx.Err()
	} else if err != nil {
		return l, c.lied(s, err)
	}
	if len(exports) > 0 && !slices.Contains(exports, l.Export) {
		return l, c.lied(s, fmt.Errorf("it has export %.8s, what was exported is %.8s", l.Export, exports[0]))
	}
	if l.Export == "" {
		return l, nil
	}
	i := slices.IndexFunc(l.Files, func(f File) bool { return f.Name == checkpoint.ManifestName })
	if i < 0 || l.Files[i].Size > maxListing {
		return l, c.lied(s, errors.New("the listing has no manifest of bearable size"))
	}
	manifest, err := c.piece(ctx, s, ask, l.Files[i], 0, l.Files[i].Size)
	if err != nil {
		return l, err
	}
	if checkpoint.IdentityOf(manifest) != l.Export {
		return l, c.lied(s, errors.New("its manifest is not the one that it lists"))
	}
	sums, err := checkpoint.Checksums(manifest)
	if err != nil {
		return l, c.lied(s, err)
	}
	for _, f := range l.Files {
		if sum, named := sums[f.Name]; named && sum != f.CRC32C {
			return l, c.lied(s, fmt.Errorf("%.80q has checksum %08x in its listing and %08x in its manifest", f.Name, f.CRC32C, sum))
		}
		delete(sums, f.Name)
	}
	for name := range sums {
		return l, c.lied(s, fmt.Errorf("%.80q is in its manifest and not in its listing", name))
	}
	return l, nil
}

// Reasons of faults.
const (
	unreachable = "unreachable"
	corrupt     = "corrupt"
)

func (c *Client) lied(s Source, err error) error {
	c.conf.Faults.WithLabelValues(corrupt).Inc()
	c.conf.Log.Warn("a host has something else than was exported", "host", s.Host, "address", s.Address, "err", err)
	return fmt.Errorf("%s (%s): %w", s.Host, s.Address, err)
}

// piece reads one range of a file. A source that is busy is asked again for as long as a piece may take.
func (c *Client) piece(ctx context.Context, s Source, ask Ask, f File, at, size int64) ([]byte, error) {
	if size == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.conf.PerPiece, fmt.Errorf("%d bytes took longer than %v", size, c.conf.PerPiece))
	defer cancel()
	ctx, stalled := context.WithCancelCause(ctx)
	defer stalled(nil)
	idle := time.AfterFunc(c.conf.Stall, func() { stalled(fmt.Errorf("nothing came for %v", c.conf.Stall)) })
	defer idle.Stop()
	q := ask.query()
	q.Set("name", f.Name)
	moved := func() { idle.Reset(c.conf.Stall) }
	pauses := retry.New(c.conf.Pause, 50*c.conf.Pause)
	data, err := c.ranged(ctx, s, q, at, size, moved)
	for errors.Is(err, errBusy) {
		idle.Stop()
		if pauses.Wait(ctx) != nil {
			break
		}
		moved()
		data, err = c.ranged(ctx, s, q, at, size, moved)
	}
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return nil, err
	}
	return data, nil
}

func (c *Client) ranged(ctx context.Context, s Source, q url.Values, at, size int64, moved func()) ([]byte, error) {
	resp, err := c.get(ctx, s, filePath, q, http.Header{"Range": {fmt.Sprintf("bytes=%d-%d", at, at+size-1)}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusPartialContent {
		return nil, refused(s, resp)
	}
	data := make([]byte, size)
	for n := 0; n < len(data); {
		m, err := resp.Body.Read(data[n:])
		n += m
		c.conf.Fetched.Add(float64(m))
		if err != nil && n < len(data) {
			return nil, fmt.Errorf("%s (%s): %d of %d bytes came: %w", s.Host, s.Address, n, size, err)
		}
		moved()
	}
	return data, nil
}
