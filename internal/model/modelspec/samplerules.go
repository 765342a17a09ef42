package modelspec

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/samplerule"
)

// sampleRules checks which samples are learnt.
func (c *complaints) sampleRules(spec *model.ModelSpec) {
	c.path = "sample_rules"
	if n := len(spec.GetSampleRules()); n > MaxRules {
		c.add("the model has %d sample rules: %d are allowed", n, MaxRules)
		return
	}
	seen := map[string]bool{}
	for i, r := range spec.GetSampleRules() {
		c.at("sample_rules", i)
		what := fmt.Sprintf("sample rule %q", r.GetName())
		c.name(fmt.Sprintf("sample rule %d", i+1), r.GetName())
		c.once(seen, what, r.GetName())
		for k, w := range r.GetWhere() {
			if n := len(w.GetField()); n > MaxName {
				c.add("%s, condition %d, reads a field of %d bytes: %d are allowed", what, k+1, n, MaxName)
			}
		}
		for _, field := range []string{r.GetReweight().GetActions(), r.GetReweight().GetPreActions()} {
			if n := len(field); n > MaxName {
				c.add("%s reads a field of %d bytes: %d are allowed", what, n, MaxName)
			}
		}
		for _, wrong := range samplerule.Check(what, r, spec, Tasks(spec)) {
			c.add("%s", wrong)
		}
	}
}
