package warmup

import (
	"testing"

	"github.com/monolith-go/monolith/internal/testenv/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }
