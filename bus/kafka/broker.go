package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/monolith-go/monolith/internal/durable"
)

// BrokerConfig configures the embedded broker.
type BrokerConfig struct {
	// Dir holds the log; it is created when missing and kept over restarts. One
	// broker owns it at a time.
	Dir string
	// Addr is host:port; port 0 draws one, which is then new at each start. The host
	// is what clients are told to connect to. Default 127.0.0.1:0.
	Addr string
	// Topics are created when missing: name to partitions.
	Topics map[string]int32
	// Retention is the age from which on records of a topic are deleted, by topic; 0 or
	// absent: never. The last record of a partition always stays.
	Retention map[string]time.Duration
	// Log takes what the broker complains about. Default: nothing.
	Log *slog.Logger
}

// Broker speaks Kafka's protocol in this process and keeps its log on disk: a produce
// is answered after fsync, so kill -9 loses nothing acked. A power cut loses nothing either,
// where syncing a file keeps its name; elsewhere what went into a segment or topic that was begun
// within the last 0.1 s.
type Broker struct {
	cluster *kfake.Cluster
	addr    string
	lock    *flock.Flock
	stop    func() // ends the expiry
	names   func() // ends the syncing of names
}

// StartBroker starts a broker on cfg.Dir. The directory being used by another broker
// is an error, and so are a taken port and a damaged log.
func StartBroker(cfg BrokerConfig) (*Broker, error) {
	if cfg.Dir == "" {
		return nil, errors.New("kafka broker: Dir must name the folder that keeps the log")
	}
	if cfg.Addr == "" {
		cfg.Addr = "127.0.0.1:0"
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil {
		return nil, fmt.Errorf("kafka broker: Addr: %w", err)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return nil, fmt.Errorf("kafka broker: Addr %q: the port must be a number", cfg.Addr)
	}
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		return nil, err
	}
	b := &Broker{lock: lock, stop: func() {}, names: func() {}}
	if err := b.start(cfg, host, port); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

func (b *Broker) start(cfg BrokerConfig, host, port string) error {
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if err := checkFolder(cfg.Dir, log); err != nil {
		return err
	}
	life, err := countStart(cfg.Dir)
	if err != nil {
		return err
	}
	b.cluster, err = kfake.NewCluster(
		kfake.NumBrokers(1),
		kfake.ClusterID("monolith"),
		kfake.DataDir(cfg.Dir),
		kfake.SyncWrites(),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) {
			return net.Listen(network, net.JoinHostPort(host, port))
		}),
		kfake.BrokerConfigs(map[string]string{
			"log.retention.ms":    "-1", // expiry is our own: the broker's forgets the end of an emptied log
			"log.retention.bytes": "-1",
			"log.segment.bytes":   strconv.Itoa(segmentBytes), // what expires is freed by whole segments
			"message.max.bytes":   strconv.Itoa(maxBatchBytes + maxBatchBytes/4),
		}),
		kfake.WithLogger(brokerLog{log}),
	)
	if err != nil {
		return fmt.Errorf("kafka broker on %s: %w", cfg.Addr, err)
	}
	b.addr = b.cluster.ListenAddrs()[0]
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := b.raiseEpochs(ctx, life); err != nil {
		return err
	}
	if err := Plain.EnsureTopics(ctx, []string{b.addr}, cfg.Topics); err != nil {
		return err
	}
	b.stop = expire(b.addr, cfg.Retention, log)
	b.names = keepNames(cfg.Dir, log)
	return nil
}

// keepNames puts the names of the broker's files on disk until it is stopped: a produce syncs
// what it writes into a segment, but not the folder in which it begins one.
func keepNames(dir string, log *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		durable.KeepNames(ctx, dir, func(err error) {
			log.Error("names of new files are not put on disk: a power cut may take them; trying on", "err", err)
		})
	}()
	return func() { cancel(); <-done }
}

// segmentBytes is how large a segment grows.
const segmentBytes = 32 << 20

// countStart returns how often a broker was started on dir, this time included.
func countStart(dir string) (int32, error) {
	path := filepath.Join(dir, "starts")
	raw, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return 0, fmt.Errorf("kafka broker: %w", err)
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(raw)), 10, 32) // unreadable: epochs go on from what the log has
	if err := replaceSynced(path, strconv.AppendInt(nil, n+1, 10)); err != nil {
		return 0, fmt.Errorf("kafka broker: %w", err)
	}
	return int32(n + 1), nil
}

// raiseEpochs gives every partition a leader epoch that no earlier life of the broker
// had. Readers recognise by it a log that lost its end while the broker was down.
func (b *Broker) raiseEpochs(ctx context.Context, life int32) error {
	c, err := newClient([]string{b.addr}, nil)
	if err != nil {
		return err
	}
	defer c.Close()
	b.cluster.ShufflePartitionLeaders() // to the only broker there is
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil // all
	res, err := req.RequestWith(ctx, c)
	if err != nil {
		return fmt.Errorf("kafka broker: %w", err)
	}
	least := life
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			least = min(least, p.LeaderEpoch)
		}
	}
	for ; least < life; least++ {
		b.cluster.ShufflePartitionLeaders()
	}
	return nil
}

// Addr is host:port where clients connect.
func (b *Broker) Addr() string { return b.addr }

// Close stops the broker; its clients see broken connections.
func (b *Broker) Close() error {
	b.stop()
	b.names()
	if b.cluster != nil {
		b.cluster.Close()
	}
	return b.lock.Close()
}

// lockDir takes dir for this process; the lock goes with it, however it ends.
func lockDir(dir string) (*flock.Flock, error) {
	if err := durable.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("kafka broker: %w", err)
	}
	l := flock.New(filepath.Join(dir, "lock"), flock.SetPermissions(0o644))
	got, err := l.TryLock()
	if err != nil {
		return nil, fmt.Errorf("kafka broker: lock %s: %w", dir, err)
	}
	if !got {
		return nil, fmt.Errorf("kafka broker: folder %s is in use by another broker: stop it or name another folder", dir)
	}
	return l, nil
}

type brokerLog struct{ *slog.Logger }

func (l brokerLog) Logf(level kfake.LogLevel, msg string, args ...any) {
	switch level {
	case kfake.LogLevelError:
		l.Error("kafka broker", "message", fmt.Sprintf(msg, args...))
	case kfake.LogLevelWarn:
		l.Warn("kafka broker", "message", fmt.Sprintf(msg, args...))
	}
}
