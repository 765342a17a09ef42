package modelspec

import "github.com/monolith-go/monolith/events/model"

// unsupported complains about what is well declared and no role of this build can run. Each
// line goes with the change that makes a role run it.
func (c *complaints) unsupported(spec *model.ModelSpec) {
	for i, s := range spec.GetSignatures() {
		c.at("signatures", i)
		c.add("the signature %q is declared, and model servers answer serving_default alone, with every task: leave signatures out", s.GetName())
	}
	c.path = ""
}
