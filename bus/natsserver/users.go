package natsserver

import (
	"fmt"
	"os"

	"github.com/nats-io/nats-server/v2/conf"
	"github.com/nats-io/nats-server/v2/server"
)

// Users are those who may connect, and what each may do. Nil: everybody may do everything.
type Users struct {
	nkeys []*server.NkeyUser
	users []*server.User
}

// ReadUsers reads the users of a file in nats-server's own words, of which it may hold but one:
// authorization. Everything else is told by flags, and would be overlooked there.
func ReadUsers(path string) (*Users, error) {
	if path == "" {
		return nil, nil
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("read the users: %w", err)
	}
	words, err := conf.ParseFile(path)
	if err != nil {
		return nil, fmt.Errorf("read the users: %w", err)
	}
	for word := range words {
		if word != "authorization" {
			return nil, fmt.Errorf("%s says %q: leave its authorization block alone in the file, such as users.conf of monolith auth init; the rest is told by flags", path, word)
		}
	}
	o := &server.Options{}
	if err := o.ProcessConfigFile(path); err != nil {
		return nil, fmt.Errorf("read the users: %w", err)
	}
	u := &Users{nkeys: o.Nkeys, users: o.Users}
	if len(u.nkeys)+len(u.users) == 0 {
		return nil, fmt.Errorf("%s names no users: list them as authorization { users: [ … ] }, as monolith auth init does", path)
	}
	return u, nil
}

func (u *Users) apply(o *server.Options) {
	if u != nil {
		o.Nkeys, o.Users = u.nkeys, u.users
	}
}
