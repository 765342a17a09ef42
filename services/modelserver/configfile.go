package modelserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/wire/tfserving"

	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"
)

// maxConfigFile is the most bytes of a configuration file that are read.
const maxConfigFile = 16 << 20

// problemConfigFile is under which name a configuration file that cannot be taken is reported.
const problemConfigFile = "model config file"

// readText reads a file of the text form of a message, which a flag names.
func readText(flag, path string, into proto.Message) (raw []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	defer f.Close()
	if raw, err = io.ReadAll(io.LimitReader(f, maxConfigFile+1)); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if len(raw) > maxConfigFile {
		return nil, fmt.Errorf("%s: %s has more than %d bytes", flag, path, maxConfigFile)
	}
	if err := prototext.Unmarshal(raw, into); err != nil {
		return raw, fmt.Errorf("%s: %s is no %s in text form: %w", flag, path, into.ProtoReflect().Descriptor().Name(), err)
	}
	return raw, nil
}

// configFile is the file that says what is served.
type configFile struct {
	s    *Server
	last []byte // as it was when it was taken
}

// take puts what the file says into force, if that is something new. Its labels bind when their
// versions are AVAILABLE.
func (c *configFile) take() error {
	config := &config_go_proto.ModelServerConfig{}
	raw, err := readText("--model-config-file", c.s.cfg.ModelConfigFile, config)
	if err != nil || c.last != nil && bytes.Equal(raw, c.last) {
		return err
	}
	models, err := tfserving.Models(config)
	if err != nil {
		return fmt.Errorf("--model-config-file: %s: %w", c.s.cfg.ModelConfigFile, err)
	}
	c.s.configure(models)
	if err := c.s.servables.Label(labelsOf(models), true); err != nil {
		return err
	}
	c.last = raw
	c.s.env.Log.Info("model configuration read", "file", c.s.cfg.ModelConfigFile, "models", len(models))
	return nil
}

// follow looks at the file every so often until ctx ends. While it cannot be taken, what it said
// before stays in force.
func (c *configFile) follow(ctx context.Context, every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	failed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		err := c.take()
		switch {
		case err == nil:
			c.s.env.Health.OK(problemConfigFile)
		case !failed:
			c.s.env.Log.Error("model configuration not read; what it said before stays in force", "err", err)
			fallthrough
		default:
			c.s.env.Health.Fail(problemConfigFile, err)
		}
		failed = err != nil
	}
}
