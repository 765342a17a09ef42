package tfsclient

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/compat/instances"
	"github.com/monolith-go/monolith/internal/wire/matrixpb"
	"github.com/monolith-go/monolith/internal/wire/matrixpb/idlpb"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
)

// The inputs under which Monolith's models take whole samples.
const (
	instancesInput = "instances"
	batchInput     = "example_batch"
)

// samples are a request's input of whole samples: those of a file, or random ones.
func (c *client) samples(path string) (input string, tensor *tfserving.TensorProto, err error) {
	switch c.inputType {
	case "example_batch":
		b, err := c.exampleBatch(path)
		if err != nil {
			return "", nil, err
		}
		instances.Share(b, c.shared)
		t, err := serialized(b)
		return batchInput, t, err
	case "example_batch_to_instance":
		b, err := c.exampleBatch(path)
		if err != nil {
			return "", nil, err
		}
		all, err := instances.Split(b)
		if err != nil {
			return "", nil, err
		}
		t, err := serialized(all...)
		return instancesInput, t, err
	case "instance":
		t, err := c.instanceRecords(path)
		return instancesInput, t, err
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return "", nil, err
	}
	one := &idlpb.Instance{}
	form := map[string]instances.Form{"json": instances.JSON, "pbtext": instances.PBTxt, "dump": instances.Dump, "binary": instances.PB}[c.inputType]
	if err := form.Parse(raw, one); err != nil {
		return "", nil, err
	}
	t, err := serialized(slices.Repeat([]*idlpb.Instance{one}, c.batch)...)
	return instancesInput, t, err
}

// serialized is a DT_STRING tensor of messages.
func serialized[M proto.Message](all ...M) (*tfserving.TensorProto, error) {
	raw := make([][]byte, len(all))
	for i, m := range all {
		var err error
		if raw[i], err = proto.Marshal(m); err != nil {
			return nil, err
		}
	}
	return tfserving.NewStrings(raw), nil
}

// instanceRecords are --batch_size records of a file as they stand there, or random ones. Fewer
// in the file are sent as they are, none is an error.
func (c *client) instanceRecords(path string) (*tfserving.TensorProto, error) {
	var raw [][]byte
	if path == "" {
		slots := make([]uint32, len(c.slots))
		for i, s := range c.slots {
			slots[i] = uint32(s)
		}
		var all []*idlpb.Instance
		for range c.batch {
			all = append(all, instances.Random(c.rng, slots))
		}
		return serialized(all...)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReader(f)
	for len(raw) < c.batch {
		record, err := c.framing.Read(r)
		if errors.Is(err, io.EOF) && len(raw) > 0 {
			break
		}
		if err == nil {
			err = proto.Unmarshal(record, &idlpb.Instance{})
		}
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", len(raw)+1, err)
		}
		raw = append(raw, record)
	}
	return tfserving.NewStrings(raw), nil
}

// exampleBatch is the batch of a file, or a random one.
func (c *client) exampleBatch(path string) (*matrixpb.ExampleBatch, error) {
	if path == "" {
		features, err := instances.ReadFeatures(c.featureList)
		if err != nil {
			return nil, err
		}
		return instances.RandomBatch(c.rng, features, c.batch, time.Now().Unix())
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	b, form := &matrixpb.ExampleBatch{}, instances.Form(c.fileType)
	var raw []byte
	if form == instances.PB {
		raw, err = c.framing.Read(bufio.NewReader(f))
	} else {
		raw, err = io.ReadAll(io.LimitReader(f, instances.MaxRecord))
	}
	if err != nil {
		return nil, fmt.Errorf("the record of the batch: %w", err)
	}
	return b, form.Parse(raw, b)
}
