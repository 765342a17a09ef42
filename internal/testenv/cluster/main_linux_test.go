package cluster

import (
	"fmt"
	"os"
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/hosts"
	"github.com/monolith-go/monolith/internal/testenv/leaks"
)

func TestMain(m *testing.M) {
	if err := hosts.Join(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	leaks.Main(m)
}
