package tfsclient

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
	"github.com/wamuir/graft/tensorflow/serving/config_go_proto"

	"github.com/monolith-go/monolith/internal/compat/agentconf"
	"github.com/monolith-go/monolith/internal/compat/instances"
	"github.com/monolith-go/monolith/internal/process/flags"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/internal/wire/tfserving/drawn"
)

const (
	maxBatch   = 1 << 16
	maxSenders = 1024
	// maxAnswer bounds an answer.
	maxAnswer = 256 << 20
)

// place is where the servers are; an agent's file also says which model is meant.
func (c *client) place() ([]string, error) {
	targets := flags.List(c.target)
	if c.conf == "" {
		if len(targets) == 0 {
			return nil, fmt.Errorf("%w: name a model server with --target, or the agent's file with --conf", flags.ErrUsage)
		}
		return targets, nil
	}
	conf, err := agentconf.Read(c.conf)
	if err != nil {
		return nil, err
	}
	d, err := conf.Deploy(agentconf.Environment{Getenv: os.Getenv, FreePort: func() (int, error) { return 0, nil }})
	if err != nil {
		return nil, err
	}
	kind := d.Main()
	if c.model == "" {
		if c.model = kind; kind == agentconf.PS {
			c.model += "_" + strconv.Itoa(d.Shard)
		}
	}
	if len(targets) > 0 {
		return targets, nil
	}
	port := d.Ports[kind].GRPC
	if port == 0 {
		return nil, fmt.Errorf("%w: neither %s nor the environment says where the %s server listens; give --target", flags.ErrUsage, c.conf, kind)
	}
	return []string{net.JoinHostPort(flags.Env("MY_HOST_IP", "127.0.0.1"), strconv.Itoa(port))}, nil
}

// dial connects to all targets, without waiting for them.
func dial(targets []string) (conns []*grpc.ClientConn, closeAll func(), err error) {
	closeAll = func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
	}
	for _, target := range targets {
		conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.MaxCallSendMsgSize(maxAnswer)))
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("%w: --target %q: %w", flags.ErrUsage, target, err)
		}
		conns = append(conns, conn)
	}
	return conns, closeAll, nil
}

// spec names what is asked of.
func (c *client) spec() *apis.ModelSpec {
	s := tfserving.Spec(c.model, c.version)
	s.SignatureName = c.signature
	return s
}

// ask is one call with its deadline; an error names the server.
func ask[Q, R any](ctx context.Context, c *client, conn *grpc.ClientConn, call func(context.Context, Q, ...grpc.CallOption) (R, error), in Q) (R, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	out, err := call(ctx, in)
	if err != nil {
		err = fmt.Errorf("model server at %s: %w", conn.Target(), err)
	}
	return out, err
}

// write writes an answer: for people, unless a form is asked for.
func (c *client) write(m proto.Message, human func() error) error {
	form := instances.Form(c.output)
	switch {
	case c.output == "text" && !c.exact && human != nil:
		return human()
	case c.output == "text":
		form = instances.PBTxt
	}
	b, err := form.Format(m)
	if err != nil {
		return err
	}
	_, err = c.out.Write(b)
	return err
}

func (c *client) status(ctx context.Context, conn *grpc.ClientConn) error {
	got, err := ask(ctx, c, conn, tfserving.NewModelClient(conn).GetModelStatus, &apis.GetModelStatusRequest{ModelSpec: c.spec()})
	if err != nil {
		return err
	}
	return c.write(got, func() error {
		for _, v := range got.GetModelVersionStatus() {
			fmt.Fprintf(c.out, "%s  %d  %s", c.model, v.GetVersion(), v.GetState())
			if v.GetStatus().GetErrorCode() != 0 {
				fmt.Fprintf(c.out, "  %s: %s", v.GetStatus().GetErrorCode(), v.GetStatus().GetErrorMessage())
			}
			if _, err := fmt.Fprintln(c.out); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c *client) meta(ctx context.Context, conn *grpc.ClientConn) error {
	in := &apis.GetModelMetadataRequest{ModelSpec: tfserving.Spec(c.model, c.version), MetadataField: c.fields} // of all signatures
	got, err := ask(ctx, c, conn, tfserving.NewPredictionClient(conn).GetModelMetadata, in)
	if err != nil {
		return err
	}
	return c.write(got, nil)
}

func (c *client) load(ctx context.Context, conn *grpc.ClientConn) error {
	raw, err := os.ReadFile(c.inputFile)
	if err != nil {
		return err
	}
	config := &config_go_proto.ModelServerConfig{}
	if err := instances.PBTxt.Parse(raw, config); err != nil {
		return fmt.Errorf("%s: %w", c.inputFile, err)
	}
	got, err := ask(ctx, c, conn, tfserving.NewModelClient(conn).HandleReloadConfigRequest, &apis.ReloadConfigRequest{Config: config})
	if err != nil {
		return err
	}
	if s := got.GetStatus(); s.GetErrorCode() != 0 {
		return fmt.Errorf("model server at %s: %s: %s", conn.Target(), s.GetErrorCode(), s.GetErrorMessage())
	}
	return c.write(got, func() error {
		_, err := fmt.Fprintf(c.out, "load done: %d models\n", len(config.GetModelConfigList().GetConfig()))
		return err
	})
}

func (c *client) get(ctx context.Context, conn *grpc.ClientConn) error {
	req, err := c.request(ctx, conn)
	if err != nil {
		return err
	}
	got, err := ask(ctx, c, conn, tfserving.NewPredictionClient(conn).Predict, req)
	if err != nil {
		return err
	}
	return c.write(got, nil)
}

// request is a Predict with what the flags say is sent.
func (c *client) request(ctx context.Context, conn *grpc.ClientConn) (*apis.PredictRequest, error) {
	req := &apis.PredictRequest{ModelSpec: c.spec()}
	if c.inputType == "" {
		asked, cancel := context.WithTimeout(ctx, c.timeout)
		defer cancel()
		def, err := drawn.Signature(asked, tfserving.NewPredictionClient(conn), tfserving.Spec(c.model, c.version), c.signature)
		if err == nil {
			req.Inputs, err = drawn.Inputs(c.rng, def, drawn.Options{Samples: c.batch, MaxID: c.maxID})
		}
		if err != nil {
			err = fmt.Errorf("random samples by the signature (give others with --input_type): %w", err)
		}
		return req, err
	}
	key, tensor, err := c.samples(c.inputFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmp.Or(c.inputFile, "samples"), err)
	}
	req.Inputs = map[string]*tfserving.TensorProto{key: tensor}
	return req, nil
}
