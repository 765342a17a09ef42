package modelspec

import "github.com/monolith-go/monolith/events/model"

// unsupported complains about what is well declared and no role of this build can run. Each
// line goes with the change that makes a role run it.
func (c *complaints) unsupported(spec *model.ModelSpec) {
	slots := map[uint32]string{}
	for i, f := range spec.GetFeatures() {
		c.at("features", i)
		if other := slots[f.GetSlot()]; other != "" {
			c.add("feature %q has slot %d, which feature %q has too, and a batch plans the rows of each feature apart: give each its own", f.GetName(), f.GetSlot(), other)
		}
		slots[f.GetSlot()] = f.GetName()
		if f.GetPooling() != model.Feature_SUM {
			c.add("feature %q has the pooling %v, and trainers read one id of a feature: leave pooling out", f.GetName(), f.GetPooling())
		}
		if f.GetMissing() != model.Feature_REJECT {
			c.add("feature %q has missing: %v, and trainers park a record without the field: leave missing out", f.GetName(), f.GetMissing())
		}
		if f.GetIds() != model.Feature_NUMBER {
			c.add("feature %q has ids: %v, and trainers read numbers below 2^48: leave ids out", f.GetName(), f.GetIds())
		}
	}
	for i, f := range spec.GetFloats() {
		c.at("floats", i)
		c.add("float %q is declared, and trainers read no numbers but ids and the label: leave floats out", f.GetName())
	}
	if n := len(spec.GetTasks()); n > 1 {
		c.at("tasks", 1)
		c.add("the model has %d tasks, and trainers read one label: declare one", n)
	}
	for i, t := range spec.GetTasks() {
		c.at("tasks", i)
		if t.GetLabel() != nil {
			c.add("task %q has a label beside the model's, and trainers read one: keep one of them", t.GetName())
		}
		if t.GetLoss() != model.Task_CROSS_ENTROPY {
			c.add("task %q has the loss %v, and model servers answer probabilities: use CROSS_ENTROPY", t.GetName(), t.GetLoss())
		}
		if t.GetWeightField() != "" || t.GetMaskField() != "" {
			c.add("task %q has a weight_field or a mask_field, which trainers do not read: leave them out", t.GetName())
		}
	}
	c.path = ""
	if spec.GetLabel().GetRaw() {
		c.add("the label is raw, and trainers read a threshold: give one")
	}
	for i, s := range spec.GetSignatures() {
		c.at("signatures", i)
		c.add("the signature %q is declared, and model servers answer serving_default alone, with every task: leave signatures out", s.GetName())
	}
	c.path = ""
}
