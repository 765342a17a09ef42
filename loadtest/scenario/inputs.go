package scenario

import (
	"cmp"
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/loadtest/rating"
)

// Inputs are what a model is asked with: for each of its features, the ids of each record.
type Inputs struct {
	features []*model.Feature
	score    string // of several tasks, the first one's; "": the only one
}

// pair are the features of a model that nobody has declared to us.
var pair = &Inputs{features: []*model.Feature{{Name: "user", Field: "userId"}, {Name: "movie", Field: "movieId"}}}

// InputsOf are those of a declared model; it refuses features that records do not have.
func InputsOf(spec *model.ModelSpec) (*Inputs, error) {
	in := &Inputs{}
	if tasks := spec.GetTasks(); len(tasks) > 0 {
		in.score = cmp.Or(tasks[0].GetName(), tasks[0].GetLogit())
	}
	for _, f := range spec.GetFeatures() {
		if len(f.GetCross()) > 0 {
			continue // the model server makes it
		}
		switch _, known := (rating.Record{}).IDs(field(f)); {
		case !known:
			return nil, fmt.Errorf("feature %q reads the field %q, which records of ratings do not have: they have %s", f.GetName(), field(f), rating.Fields)
		case f.GetIds() != model.Feature_NUMBER:
			return nil, fmt.Errorf("feature %q takes ids as %v: records of ratings have numbers", f.GetName(), f.GetIds())
		}
		in.features = append(in.features, f)
	}
	if len(spec.GetFloats()) > 0 {
		return nil, fmt.Errorf("float %q: records of ratings have ids alone", spec.GetFloats()[0].GetName())
	}
	return in, nil
}

func field(f *model.Feature) string {
	if f.GetField() != "" {
		return f.GetField()
	}
	return f.GetName()
}

// answer is the output that says whether the user likes the movie.
func (in *Inputs) answer(outputs map[string]*tfserving.TensorProto) *tfserving.TensorProto {
	if in != nil && outputs[in.score] != nil {
		return outputs[in.score]
	}
	if len(outputs) == 1 {
		for _, only := range outputs {
			return only
		}
	}
	return nil
}

// tensors are the inputs of one request.
func (in *Inputs) tensors(recs []rating.Record) map[string]*tfserving.TensorProto {
	if in == nil {
		in = pair
	}
	out := make(map[string]*tfserving.TensorProto, len(in.features))
	for _, f := range in.features {
		var values []int64
		splits, single := make([]int64, 1, len(recs)+1), true
		for _, r := range recs {
			ids, _ := r.IDs(field(f))
			values = append(values, ids...)
			splits, single = append(splits, int64(len(values))), single && len(ids) == 1
		}
		out[f.GetName()] = tfserving.NewInt64(values)
		if !single {
			out[f.GetName()+"/row_splits"] = tfserving.NewInt64(splits)
		}
	}
	return out
}
