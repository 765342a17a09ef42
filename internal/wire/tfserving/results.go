package tfserving

import (
	"fmt"
	"math"

	apis "github.com/wamuir/graft/tensorflow/serving/apis_go_proto"
)

// The methods of inference, as signatures and tasks name them.
const (
	MethodPredict  = "tensorflow/serving/predict"
	MethodClassify = "tensorflow/serving/classify"
	MethodRegress  = "tensorflow/serving/regress"
)

// EncodeResult writes the answer of :classify, for each example its pairs of label and score, or of
// :regress, a number for each, in the layout of the original.
func EncodeResult(r *apis.InferenceResult) ([]byte, error) {
	b := append([]byte(nil), "{\n    \"results\": ["...)
	var err error
	number := func(i int, v float32) {
		if f := float64(v); err == nil && (math.IsNaN(f) || math.IsInf(f, 0)) {
			err = fmt.Errorf("the score of example %d is %v, which JSON cannot hold; the model's weights are broken", i, v)
		}
		b = appendDecimal(b, v)
	}
	for i, x := range r.GetRegressionResult().GetRegressions() {
		if i > 0 {
			b = append(b, ", "...)
		}
		number(i, x.GetValue())
	}
	for i, x := range r.GetClassificationResult().GetClassifications() {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, '[')
		for k, class := range x.GetClasses() {
			if k > 0 {
				b = append(b, ", "...)
			}
			b = append(appendName(append(b, '['), class.GetLabel()), ", "...)
			number(i, class.GetScore())
			b = append(b, "\n            ]"...)
		}
		b = append(b, "\n        ]"...)
	}
	return append(b, "\n    ]\n}"...), err
}
