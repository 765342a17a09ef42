package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/monolith-go/monolith/events/znode"
	"github.com/monolith-go/monolith/projections/zookeeper/wire"
)

// Only createContainer makes containers, and none that count.
func TestModeOf(t *testing.T) {
	for _, tc := range []struct {
		op         wire.Op
		mode, want znode.Mode
	}{
		{wire.OpCreate, znode.Mode_PERSISTENT, znode.Mode_PERSISTENT},
		{wire.OpCreate2, znode.Mode_EPHEMERAL_SEQUENTIAL, znode.Mode_EPHEMERAL_SEQUENTIAL},
		{wire.OpCreate, znode.Mode_CONTAINER, znode.Mode_PERSISTENT},
		{wire.OpCreateTTL, znode.Mode_PERSISTENT_WITH_TTL, znode.Mode_PERSISTENT_WITH_TTL},
		{wire.OpCreateContainer, znode.Mode_PERSISTENT, znode.Mode_CONTAINER},
		{wire.OpCreateContainer, znode.Mode_EPHEMERAL, znode.Mode_CONTAINER},
		{wire.OpCreateContainer, znode.Mode_CONTAINER, znode.Mode_CONTAINER},
		{wire.OpCreateContainer, znode.Mode_PERSISTENT_SEQUENTIAL, -1},
	} {
		if got := modeOf(tc.op, tc.mode); got != tc.want {
			t.Errorf("%s with %v becomes %v, want %v", opName(tc.op), tc.mode, got, tc.want)
		}
	}
}

// Requests that came together are answered together: a reply waits while a whole request is
// there already.
func TestBuffered(t *testing.T) {
	whole := append(binary.BigEndian.AppendUint32(nil, 5), "12345"...)
	for name, tc := range map[string]struct {
		there []byte
		want  bool
	}{
		"nothing": {nil, false}, "half a length": {whole[:3], false}, "a length": {whole[:4], false}, "all but a byte": {whole[:8], false},
		"a request": {whole, true}, "and more": {append(whole[:9:9], 0), true},
	} {
		br := bufio.NewReader(bytes.NewReader(tc.there))
		_, _ = br.Peek(len(tc.there)) // has come
		if got := buffered(br); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
