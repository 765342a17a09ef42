package wire

import (
	"fmt"
	"strings"
	"time"

	"github.com/monolith-go/monolith/events"
)

// MinLease is the shortest lease: a server counts them in whole seconds.
const MinLease = time.Second

// CheckLease refuses a lease that no bus could keep.
func CheckLease(name, holder string, ttl time.Duration) error {
	if name == "" || holder == "" {
		return fmt.Errorf("%w: a lease needs a name and a holder", events.ErrInvalid)
	}
	if ttl < MinLease {
		return fmt.Errorf("%w: lease %s for %v; the shortest is %v", events.ErrInvalid, name, ttl, MinLease)
	}
	return nil
}

// LeaseKey is the lease's key in the bucket: letters, digits, '-' and '_' stand for
// themselves, so do single dots inside, and every other byte is =XX.
func LeaseKey(name string) string {
	var b strings.Builder
	for i := range len(name) {
		c := name[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' ||
			c == '.' && i > 0 && i < len(name)-1 && name[i-1] != '.'
		if plain {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "=%02X", c)
		}
	}
	return b.String()
}
