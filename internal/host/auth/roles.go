package auth

import (
	"slices"

	"github.com/monolith-go/monolith/bus/jetstream"
	"github.com/monolith-go/monolith/events/catalog"
)

// Who are those that have keys: the roles, and people by what they may do.
var Who = []Holder{
	{Name: "portal", Grant: jetstream.Grant{Serves: []string{"portal"}, Acts: true, Makes: true}},
	{Name: "publisher", Grant: jetstream.Grant{Serves: []string{"publisher"}, Acts: true}},
	{Name: "replica-registry", Grant: jetstream.Grant{Serves: []string{"registry", "pulse.registry"}, Acts: true}},
	{Name: "model-sync", Grant: jetstream.Grant{Serves: []string{"model-sync"}, Acts: true}},
	{Name: "tfs-supervisor", Grant: jetstream.Grant{Acts: true}}, // its model server, too
	{Name: "ps", Grant: jetstream.Grant{Serves: []string{"ps.>"}, Acts: true, Publishes: true}},
	{Name: "trainer", Grant: jetstream.Grant{Serves: []string{"trainer.>"}, Acts: true}},
	{Name: "operator", Grant: jetstream.Grant{Acts: true, Makes: true, Trims: true}},
	{Name: "reader"},
}

// Holder is one who has a certificate and an NKey.
type Holder struct {
	Name  string
	Grant jetstream.Grant // but for the facts that it owns
}

// Person says that no role has these keys.
func (h Holder) Person() bool { return h.Name == "operator" || h.Name == "reader" }

// grant is what the holder may do on NATS: of facts it states those that the catalogue says it
// owns, and no others.
func (h Holder) grant() jetstream.Grant {
	g := h.Grant
	for _, c := range catalog.Contexts {
		if catalog.Owners[c] == h.Name {
			g.States = append(slices.Clone(g.States), c)
		}
	}
	return g
}
