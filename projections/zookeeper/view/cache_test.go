package view

import (
	"fmt"
	"testing"

	"github.com/monolith-go/monolith/events"
	"github.com/monolith-go/monolith/events/container"
	"github.com/monolith-go/monolith/internal/wire/znodedata"
)

// What the fold has worked out is forgotten before it takes more than its bound, whichever of
// its maps grows.
func TestCacheIsBounded(t *testing.T) {
	for name, grow := range map[string]func(m *cache, i int){
		"subjects": func(m *cache, i int) { m.subject(events.Join("b", "znode", fmt.Sprint(i))) },
		"hosts":    func(m *cache, i int) { m.host("b", fmt.Sprint(i), &container.Container{}) },
		"replicas": func(m *cache, i int) { m.replica("b", fmt.Sprint(i), znodedata.ReplicaMeta{}) },
	} {
		m := newCache()
		most := 0
		for i := range maxCached + 10 {
			grow(m, i)
			most = max(most, len(m.subjects)+len(m.hosts)+len(m.replicas))
		}
		if left := len(m.subjects) + len(m.hosts) + len(m.replicas); most != maxCached || left != 10 {
			t.Errorf("%s: up to %d are kept, and %d at the end, want %d and 10", name, most, left, maxCached)
		}
	}
}
