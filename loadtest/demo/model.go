package demo

import (
	_ "embed"
	"sync"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/specfile"
)

//go:embed movies.yaml
var moviesText []byte

// movies is the demo's own model.
var movies = sync.OnceValues(func() (*model.ModelSpec, error) { return specfile.Parse(moviesText) })
