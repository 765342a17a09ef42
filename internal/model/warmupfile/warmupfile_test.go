package warmupfile

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/model/tfrecord"
	"github.com/monolith-go/monolith/internal/wire/tfserving"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// read is how many requests come before the error.
func read(file []byte) (all []*apis.PredictionLog, err error) {
	for recorded, err := range Requests(bytes.NewReader(file)) {
		if err != nil {
			return all, err
		}
		all = append(all, recorded)
	}
	return all, nil
}

func TestRequests(t *testing.T) {
	one := &apis.PredictRequest{ModelSpec: tfserving.Spec("m", 3)}
	most := slices.Repeat([]*apis.PredictRequest{one}, MaxRequests)
	file, err := Encode(most)
	if err != nil {
		t.Fatal(err)
	}
	all, err := read(file)
	if err != nil || len(all) != MaxRequests || !proto.Equal(all[MaxRequests-1].GetPredictLog().GetRequest(), one) {
		t.Errorf("%d requests, %v", len(all), err)
	}
	more, err := Encode(append(most, one))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := read(more); !errors.Is(err, ErrTooMany) || len(all) != MaxRequests {
		t.Errorf("one more: %d requests, %v", len(all), err)
	}
	if all, err := read(nil); err != nil || len(all) != 0 {
		t.Errorf("an empty file: %d requests, %v", len(all), err)
	}
	two, err := Encode(most[:2])
	if err != nil {
		t.Fatal(err)
	}
	if all, err := read(two[:len(two)-1]); err == nil || !strings.Contains(err.Error(), "record 1 is broken") || len(all) != 1 {
		t.Errorf("cut short: %d requests, %v", len(all), err)
	}
	var odd bytes.Buffer
	if err := tfrecord.NewWriter(&odd).Write([]byte("no message")); err != nil {
		t.Fatal(err)
	}
	if _, err := read(odd.Bytes()); err == nil || !strings.Contains(err.Error(), "record 0 is no PredictionLog") {
		t.Errorf("no PredictionLog: %v", err)
	}
}

// Whatever the bytes are, they are read as requests that are written as they were, or refused.
func FuzzRequests(f *testing.F) {
	file, err := Encode([]*apis.PredictRequest{{ModelSpec: tfserving.Spec("m", 3)}, {}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(file)
	f.Add(file[:20])
	f.Fuzz(func(t *testing.T, file []byte) {
		all, err := read(file)
		if err != nil {
			return
		}
		var requests []*apis.PredictRequest
		for _, recorded := range all {
			requests = append(requests, recorded.GetPredictLog().GetRequest())
		}
		again, err := Encode(requests)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := read(again); err != nil || len(got) != len(all) {
			t.Errorf("%d requests written again are %d, %v", len(all), len(got), err)
		}
	})
}
