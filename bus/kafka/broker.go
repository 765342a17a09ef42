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
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"golang.org/x/sys/unix"
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
	// Log takes what the broker complains about. Default: nothing.
	Log *slog.Logger
}

// Broker speaks Kafka's protocol in this process and keeps its log on disk: a produce
// is answered after fsync, so kill -9 loses nothing acked.
type Broker struct {
	cluster *kfake.Cluster
	addr    string
	lock    *os.File
}

// StartBroker starts a broker on cfg.Dir. The directory being used by another broker
// is an error, and so is a taken port.
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
	opts := []kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("monolith"),
		kfake.DataDir(cfg.Dir),
		kfake.SyncWrites(),
		kfake.ListenFn(func(network, _ string) (net.Listener, error) {
			return net.Listen(network, net.JoinHostPort(host, port))
		}),
		kfake.BrokerConfigs(map[string]string{
			"log.retention.ms":    "-1", // offsets are kept in checkpoints: nothing expires by itself
			"log.retention.bytes": "-1",
			"message.max.bytes":   strconv.Itoa(maxBatchBytes + maxBatchBytes/4),
		}),
	}
	if cfg.Log != nil {
		opts = append(opts, kfake.WithLogger(brokerLog{cfg.Log}))
	}
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("kafka broker on %s: %w", cfg.Addr, err)
	}
	b := &Broker{cluster: c, addr: c.ListenAddrs()[0], lock: lock}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := EnsureTopics(ctx, []string{b.addr}, cfg.Topics); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Addr is host:port where clients connect.
func (b *Broker) Addr() string { return b.addr }

// Close stops the broker; its clients see broken connections.
func (b *Broker) Close() error {
	b.cluster.Close()
	return b.lock.Close()
}

// lockDir takes dir for this process; the lock goes with the file descriptor.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("kafka broker: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("kafka broker: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("kafka broker: folder %s is in use by another broker: stop it or name another folder: %w", dir, err)
	}
	return f, nil
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
