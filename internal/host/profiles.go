package host

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"os"
	"strconv"

	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/process/heapfiles"
)

// maxProfile bounds, in seconds, how long one profile is taken.
const maxProfile = 120

// profiles answers /debug/pprof/: the runtime's profiles by their names, and those of a
// stretch of time. The command line, which net/http/pprof would show too, is left out: a URL
// in it may hold a password.
func profiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", bounded(pprof.Index)) // lists, and answers every named profile
	mux.HandleFunc("GET /debug/pprof/profile", bounded(pprof.Profile))
	mux.HandleFunc("GET /debug/pprof/trace", bounded(pprof.Trace))
}

// bounded refuses a stretch of time longer than maxProfile: whoever forgets a profile slows
// the process for no longer than that.
func bounded(take http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if s := r.FormValue("seconds"); s != "" {
			if n, err := strconv.ParseFloat(s, 64); err != nil || !(n > 0 && n <= maxProfile) {
				http.Error(w, fmt.Sprintf("seconds=%s: give a number up to %d", s, maxProfile), http.StatusBadRequest)
				return
			}
		}
		take(w, r)
	}
}

// heapFiles writes heap profiles where the environment says, until stop is called.
func heapFiles(log *slog.Logger) (stop func(), err error) {
	c, err := heapfiles.Read(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", flags.ErrUsage, err)
	}
	return c.Start(log), nil
}
