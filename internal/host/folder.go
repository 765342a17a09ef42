package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/monolith-go/monolith/bus"
	"github.com/monolith-go/monolith/bus/natsserver"
	"github.com/monolith-go/monolith/internal/host/connect"
)

// DialFolder connects to the logs of a data folder that is there: those of the process which holds
// it or, where none does, the folder's own, which it opens. Close ends both.
func DialFolder(ctx context.Context, dir string, conn connect.Config, name string) (b bus.Bus, closed func() error, err error) {
	if _, err := os.Stat(filepath.Join(dir, "nats")); err != nil {
		return nil, nil, fmt.Errorf("no logs lie in %s: name the folder of a job or a system, as train, demo or up made it, with --dir: %w", dir, err)
	}
	var opened []func() error // the first one last
	closed = func() (err error) {
		for i := range opened {
			err = errors.Join(err, opened[len(opened)-1-i]())
		}
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, closed())
		}
	}()
	data, err := OpenDataDir(dir)
	switch {
	case errors.Is(err, ErrInUse):
		r, rerr := ReadRunning(dir)
		if rerr != nil {
			return nil, nil, errors.Join(err, rerr)
		}
		conn.NATS = r.NATS
	case err != nil:
		return nil, nil, err
	default:
		opened = append(opened, data.Close)
		nats, err := natsserver.Start(natsserver.Config{Dir: filepath.Join(data.Path, "nats")})
		if err != nil {
			return nil, nil, err
		}
		opened = append(opened, nats.Close)
		conn.NATS = nats.URL()
	}
	if b, err = conn.Dial(ctx, name); err != nil {
		return nil, nil, err
	}
	opened = append(opened, b.Close)
	return b, closed, nil
}
