package leases

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/monolith-go/monolith/bus/jetstream/internal/conn"
)

// Held is who holds what at this moment, by the leases' names. A bucket that is not there
// holds nothing.
func (l Leases) Held(ctx context.Context) (map[string]string, error) {
	held := map[string]string{}
	kv, err := l.conn.JS.KeyValue(ctx, Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return held, nil
	}
	if err != nil {
		return nil, fmt.Errorf("leases: %w", conn.Failure(err))
	}
	keys, err := kv.Keys(ctx)
	if err != nil && !errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil, fmt.Errorf("leases: %w", conn.Failure(err))
	}
	for _, key := range keys {
		e, err := kv.Get(ctx, key)
		if errors.Is(err, jetstream.ErrKeyNotFound) {
			continue // it has run out meanwhile
		}
		if err != nil {
			return nil, fmt.Errorf("leases: %w", conn.Failure(err))
		}
		holder, _, _ := strings.Cut(string(e.Value()), " ")
		name, err := url.PathUnescape(strings.ReplaceAll(key, "=", "%"))
		if err != nil {
			name = key
		}
		held[name] = holder
	}
	return held, nil
}
