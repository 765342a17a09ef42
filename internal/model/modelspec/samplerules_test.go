package modelspec_test

import (
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/samplerule"
)

func sampleRule(t *testing.T, text string) *model.SampleRule {
	t.Helper()
	r := new(model.SampleRule)
	if err := protojson.Unmarshal([]byte(text), r); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func TestSampleRules(t *testing.T) {
	for _, tc := range []struct{ rule, says string }{
		{`{"where":[{"field":"c","in":["a"]}],"keep":{}}`, ""},
		{`{"where":[{"label":"score","below":0.5}],"drop":{"rate":0.9,"correction":"WEIGHT"}}`, ""},
		{`{"drop":{"rate":0.5}}`, ""},
		{`{"weigh":{"weight":0.5}}`, ""},
		{`{"where":[{"field":"c","missing":true,"not":true}],"drop":{}}`, ""},
		{`{"where":[{"field":"c","startsWith":["a","b"],"every":true}],"keep":{}}`, ""},
		{`{"where":[{"field":"c","endsWith":["a"],"not":true}],"keep":{}}`, ""},
		{`{"where":[{"label":"score","every":true}],"keep":{}}`, "is about a label, which is one number"},
		{`{"where":[{"label":"score","startsWith":["1"]}],"keep":{}}`, "is about a label, which is one number"},
		{`{"where":[{"field":"c","endsWith":["a",""]}],"keep":{}}`, "an empty text"},
		{`{"where":[{"field":"c","startsWith":["a"],"in":["b"]}],"keep":{}}`, "both starts_with or ends_with and values"},
		{`{"where":[{"field":"c","endsWith":["a"],"below":3}],"keep":{}}`, "both starts_with or ends_with and values"},
		{`{"where":[{"field":"c","startsWith":["a"],"endsWith":["b"]}],"keep":{}}`, "both starts_with and ends_with"},
		{`{"where":[{"label":"score","atLeast":0.5}],"negatives":{"count":4,"item":["movie"]}}`, ""},
		{`{"negatives":{"count":4,"item":["movie"],"records":100,"items":50,"start":0,"weight":0.25}}`, ""},
		{`{"negatives":{"item":["movie"]}}`, "has negatives with count 0: give 1 to 64"},
		{`{"negatives":{"count":1,"item":["movie"],"records":0}}`, "with records 0: give 1 to 1048576"},
		{`{"negatives":{"count":1,"item":["movie"],"items":10,"start":10}}`, "with start 10: give 0 to 9"},
		{`{"negatives":{"count":1,"item":["movie"],"weight":-1}}`, "of the weight -1"},
		{`{"negatives":{"count":1}}`, "negatives without an item: name its features"},
		{`{"negatives":{"count":1,"item":["film"]}}`, `negatives of "film", which is no feature or float`},
		{`{"negatives":{"count":1,"item":["movie","movie"]}}`, `negatives of "movie" twice`},
		{`{"negatives":{"count":1,"item":["movie","user"]}}`, "keep nothing of their sample"},
		{`{"reweight":{"actions":"a","preActions":"b","actionPriority":[1],"reweight":[{"action":1,"weight":3,"label":5}]}}`, ""},
		{`{"reweight":{"actions":"a","preActions":"b","label":"score","reweight":[{"action":1,"label":-4}]}}`, ""},
		{`{"reweight":{"actions":"a","reweight":[{"action":1,"label":5}]}}`, "without actions or pre_actions"},
		{`{"reweight":{"preActions":"a","reweight":[{"action":1,"label":5}]}}`, "without actions or pre_actions"},
		{`{"reweight":{"actions":"a","preActions":"b"}}`, "reweighs no action"},
		{`{"reweight":{"actions":"a","preActions":"b","actionPriority":[1,1],"reweight":[{"action":1,"label":5}]}}`, "the action 1 twice in action_priority"},
		{`{"reweight":{"actions":"a","preActions":"b","reweight":[{"action":1,"label":5},{"action":1,"label":5}]}}`, "reweighs the action 1 twice"},
		{`{"reweight":{"actions":"a","preActions":"b","label":"like","reweight":[{"action":1,"label":5}]}}`, `the label of "like", which is no task`},
		{`{"reweight":{"actions":"a","preActions":"b","reweight":[{"action":1,"label":1}]}}`, "the label 1, and -1, which takes it back, is learnt as the same"},
		{`{"reweight":{"actions":"a","preActions":"b","reweight":[{"action":1}]}}`, "the label 0, which has no opposite"},
		{`{"reweight":{"actions":"a","preActions":"b","reweight":[{"action":1,"label":"Infinity"}]}}`, "the label +Inf, which has no opposite"},
		{`{"reweight":{"actions":"a","preActions":"b","reweight":[{"action":1,"label":"NaN"}]}}`, "the label NaN, which has no opposite"},
		{`{"reweight":{"actions":"a","preActions":"b","actionPriority":[` + strings.Repeat("1,", samplerule.MaxActions) + `1]}}`, "4097 actions: 4096 are allowed"},
		{`{"reweight":{"actions":"` + strings.Repeat("x", modelspec.MaxName+1) + `","preActions":"b","reweight":[{"action":1,"label":5}]}}`, "a field of 129 bytes"},
		{`{}`, `sample rule "rule 1" does nothing`},
		{`{"keep":{}}`, "keeps every sample"},
		{`{"drop":{}}`, "drops every sample"},
		{`{"drop":{"rate":1}}`, "drops every sample"},
		{`{"drop":{"rate":0}}`, "a share of 0"},
		{`{"drop":{"rate":1.5}}`, "a share of 1.5"},
		{`{"drop":{"rate":"NaN"}}`, "a share of NaN"},
		{`{"where":[{"field":"c"}],"drop":{"correction":"WEIGHT"}}`, "none is left"},
		{`{"drop":{"rate":0.5,"correction":7}}`, "unknown correction 7"},
		{`{"weigh":{"weight":0}}`, "has the weight 0"},
		{`{"weigh":{"weight":1e300}}`, "has the weight 1e+300"},
		{`{"name":"n","where":[{}],"keep":{}}`, `sample rule "n", condition 1, must name a field`},
		{`{"where":[{"field":"a","label":"score"}],"keep":{}}`, "and not both"},
		{`{"where":[{"label":"like"}],"keep":{}}`, `the label of "like", which is no task`},
		{`{"where":[{"field":"c","in":["1"],"below":3}],"keep":{}}`, "both in and a range"},
		{`{"where":[{"field":"c","atLeast":3,"below":3}],"keep":{}}`, "between which nothing lies"},
		{`{"where":[{"field":"c","below":"NaN"}],"keep":{}}`, "between which nothing lies"},
		{`{"where":[{"field":"` + strings.Repeat("x", modelspec.MaxName+1) + `"}],"keep":{}}`, "a field of 129 bytes"},
		{`{"name":"` + strings.Repeat("x", modelspec.MaxName+1) + `","drop":{"rate":0.5}}`, "a name of 129 bytes"},
	} {
		spec := modelspec.MovieRanking()
		spec.SampleRules = append(spec.SampleRules, sampleRule(t, tc.rule))
		err := modelspec.Validate(modelspec.Normalize(spec))
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%s: %v, want %q", tc.rule, err, tc.says)
		}
	}
	spec := modelspec.MovieRanking()
	for range modelspec.MaxRules + 1 {
		spec.SampleRules = append(spec.SampleRules, sampleRule(t, `{"drop":{"rate":0.1}}`))
	}
	if err := modelspec.Validate(modelspec.Normalize(spec)); err == nil || !strings.Contains(err.Error(), "65 sample rules: 64 are allowed") {
		t.Error(err)
	}
	spec.SampleRules = []*model.SampleRule{sampleRule(t, `{"name":"a","drop":{"rate":0.1}}`), sampleRule(t, `{"name":"a","drop":{"rate":0.1}}`)}
	if err := modelspec.Validate(spec); err == nil || !strings.Contains(err.Error(), `sample rule "a" is declared twice`) {
		t.Error(err)
	}
}

// Rules that drop change nothing of what is computed; rules that weigh give every task weights, which the
// losses that compare samples do not have.
func TestSampleRulesThatWeigh(t *testing.T) {
	plain := modelspec.MovieRanking()
	for text, weighted := range map[string]bool{`{"drop":{"rate":0.5}}`: false, `{"drop":{"rate":0.5,"correction":"WEIGHT"}}`: true, `{"weigh":{"weight":2}}`: true, `{"reweight":{"actions":"a","preActions":"b","reweight":[{"action":1,"label":5}]}}`: true, `{"negatives":{"count":1,"item":["movie"]}}`: false, `{"negatives":{"count":1,"item":["movie"],"weight":0.5}}`: true} {
		spec := modelspec.MovieRanking()
		spec.SampleRules = append(spec.SampleRules, sampleRule(t, text))
		spec = modelspec.Normalize(spec)
		m, err := modelspec.Compile(spec)
		if err != nil || m.Tasks[0].Weighted() != weighted {
			t.Errorf("%s: %v", text, err)
		}
		if modelspec.Hash(spec) == modelspec.Hash(plain) {
			t.Errorf("%s: the hash is that of the model without it", text)
		}
		tower := modelspec.MovieRanking()
		last := tower.Layers[len(tower.Layers)-1]
		tower.Label = nil
		tower.Tasks = []*model.Task{{Name: "like", Logit: last.Name, Loss: model.Task_IN_BATCH_AUC, Label: &model.Label{Field: "rating", Threshold: 3}}}
		tower.SampleRules = spec.SampleRules
		if err := modelspec.Validate(tower); weighted != (err != nil) || weighted && !strings.Contains(err.Error(), "compares the samples of a batch") {
			t.Errorf("%s, in a batch: %v", text, err)
		}
	}
}
