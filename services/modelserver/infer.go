package modelserver

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/monolith-go/monolith/internal/wire/tfserving"
	"github.com/monolith-go/monolith/services/modelserver/entry"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// maxTasks bounds the tasks of one MultiInference.
const maxTasks = 64

// infer answers tasks about the same tf.train.Examples, all of one version: for each the class or the
// number of one output, which its signature names.
func (s *Server) infer(ctx context.Context, c caller, tasks []*apis.InferenceTask, examples func() ([][]byte, error)) (results []*apis.InferenceResult, id string, err error) {
	spec := &apis.ModelSpec{}
	if len(tasks) > 0 { // the signature is each task's own
		spec.Name, spec.VersionChoice = tasks[0].GetModelSpec().GetName(), tasks[0].GetModelSpec().GetVersionChoice()
	}
	a, err := s.answer(ctx, c, spec, taskInput(tasks, examples))
	if err != nil {
		return nil, a.id, err
	}
	for _, t := range tasks {
		i, err := outputOf(a.model, t) // an older version may answer than the one that was looked at
		if err != nil {
			return nil, a.id, err
		}
		results = append(results, resultOf(t, a.model.Version(), a.scores[i]))
	}
	return results, a.id, nil
}

// taskInput is what tasks ask a model about, if it can answer them.
func taskInput(tasks []*apis.InferenceTask, examples func() ([][]byte, error)) func(*entry.Model) (entry.Input, error) {
	return func(m *entry.Model) (in entry.Input, err error) {
		if err := oneModel(tasks); err != nil {
			return in, err
		}
		for _, t := range tasks {
			if _, err := outputOf(m, t); err != nil {
				return in, err
			}
		}
		if in.Examples, err = examples(); err != nil {
			return in, status.Error(codes.InvalidArgument, err.Error())
		}
		return in, nil
	}
}

// inferOne is infer for one task.
func (s *Server) inferOne(ctx context.Context, c caller, spec *apis.ModelSpec, method string, examples func() ([][]byte, error)) (*apis.InferenceResult, string, error) {
	c.api = apiOf(method)
	results, id, err := s.infer(ctx, c, []*apis.InferenceTask{{ModelSpec: spec, MethodName: method}}, examples)
	if err != nil {
		return nil, id, err
	}
	return results[0], id, nil
}

// apiOf names a method of inference as gRPC does.
func apiOf(method string) string {
	if method == tfserving.MethodClassify {
		return "Classify"
	}
	return "Regress"
}

// oneModel refuses tasks that cannot be answered together.
func oneModel(tasks []*apis.InferenceTask) error {
	if n := len(tasks); n == 0 || n > maxTasks {
		return status.Errorf(codes.InvalidArgument, "the request has %d tasks; send 1 to %d", n, maxTasks)
	}
	first := tasks[0].GetModelSpec()
	for _, t := range tasks {
		spec := t.GetModelSpec()
		if spec.GetName() != first.GetName() || spec.GetVersion().GetValue() != first.GetVersion().GetValue() || spec.GetVersionLabel() != first.GetVersionLabel() {
			return status.Errorf(codes.InvalidArgument, "all tasks of a MultiInference ask the same version of the same model; send %s its own request", spec.GetName())
		}
	}
	return nil
}

// outputOf finds which output a task asks for: the one that its signature names, or the only one.
func outputOf(m *entry.Model, t *apis.InferenceTask) (int, error) {
	name, i := t.GetModelSpec().GetSignatureName(), 0
	switch n := len(m.Outputs()); {
	case name != "" && name != tfserving.DefaultSignature:
		if i = slices.Index(m.Outputs(), name); i < 0 {
			return 0, status.Errorf(codes.InvalidArgument, "model %s has no output %q; name one of {%s} as the signature", m.Name(), name, strings.Join(m.Outputs(), ", "))
		}
	case n != 1:
		return 0, status.Errorf(codes.InvalidArgument, "model %s has %d outputs; name one of {%s} as the signature, or send Predict", m.Name(), n, strings.Join(m.Outputs(), ", "))
	}
	switch t.GetMethodName() {
	case tfserving.MethodRegress:
	case tfserving.MethodClassify:
		if !m.Probability(i) {
			return 0, status.Errorf(codes.InvalidArgument, "output %q of model %s is a number and no probability of a class; send Regress", m.Outputs()[i], m.Name())
		}
	default:
		return 0, status.Errorf(codes.InvalidArgument, "a task has the method %q; use %s or %s", t.GetMethodName(), tfserving.MethodClassify, tfserving.MethodRegress)
	}
	return i, nil
}

// resultOf is the scores as the task wants them. A probability has two classes: "0", that it is not so,
// and "1", that it is.
func resultOf(t *apis.InferenceTask, version int64, scores []float32) *apis.InferenceResult {
	spec := tfserving.Spec(t.GetModelSpec().GetName(), version)
	spec.SignatureName = cmp.Or(t.GetModelSpec().GetSignatureName(), tfserving.DefaultSignature)
	if t.GetMethodName() == tfserving.MethodRegress {
		r := &apis.RegressionResult{Regressions: make([]*apis.Regression, len(scores))}
		for i, v := range scores {
			r.Regressions[i] = &apis.Regression{Value: v}
		}
		return &apis.InferenceResult{ModelSpec: spec, Result: &apis.InferenceResult_RegressionResult{RegressionResult: r}}
	}
	r := &apis.ClassificationResult{Classifications: make([]*apis.Classifications, len(scores))}
	for i, p := range scores {
		r.Classifications[i] = &apis.Classifications{Classes: []*apis.Class{{Label: "0", Score: 1 - p}, {Label: "1", Score: p}}}
	}
	return &apis.InferenceResult{ModelSpec: spec, Result: &apis.InferenceResult_ClassificationResult{ClassificationResult: r}}
}

// examplesOf are the examples of an input, serialized, with the context in each.
func examplesOf(in *apis.Input) ([][]byte, error) {
	list := in.GetExampleList().GetExamples()
	var context []byte
	if with := in.GetExampleListWithContext(); with != nil {
		list = with.GetExamples()
		var err error
		if context, err = proto.Marshal(with.GetContext()); err != nil {
			return nil, err
		}
	}
	if len(list) == 0 {
		return nil, errors.New("the input is empty; send example_list with at least one tf.train.Example")
	}
	all := make([][]byte, len(list))
	for i, e := range list {
		var err error
		if all[i], err = proto.Marshal(e); err != nil {
			return nil, err
		}
	}
	return tfserving.WithContext(context, all)
}
