package input

import (
	"fmt"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/modelspec"
	"github.com/monolith-go/monolith/internal/model/samplerule"
)

// reweight is what a rule says of actions: where they are found, and whose label it sets.
type reweight struct {
	*samplerule.Reweight
	actions, before int
	task            int
	now, earlier    []int64 // actions of the sample that is read
}

// reweightOf makes a rule's ready.
func (d *Decoder) reweightOf(r *model.SampleRule_Reweight, tasks []*model.Task) *reweight {
	made := &reweight{actions: d.declare(r.GetActions()), before: d.declare(r.GetPreActions()), task: samplerule.TaskOf(r, tasks)}
	made.Reweight = samplerule.ReweightOf(r, func(label float64) float32 { return modelspec.Labelled(d.tasks[made.task].of, label) }, d.options.Measure)
	return made
}

// reweighs says how often the sample counts by its actions, and sets its label.
func (d *Decoder) reweighs(r *reweight) (count float64, err error) {
	if r.now, err = d.wholes(r.actions, kept(r.now, maxValues)); err != nil {
		return 0, err
	}
	if r.earlier, err = d.wholes(r.before, kept(r.earlier, maxValues)); err != nil {
		return 0, err
	}
	if err = d.task(r.task); err != nil {
		return 0, err
	}
	t := &d.tasks[r.task]
	count, t.says = r.Of(d.sample.Labels[r.task], r.earlier, r.now)
	t.told = true
	return count, nil
}

// wholes reads a field of whole numbers.
func (d *Decoder) wholes(at int, into []int64) ([]int64, error) {
	it := d.values(at)
	for it.next() {
		n, ok := d.whole(&it.element)
		if !ok {
			return into, fmt.Errorf("%s is %s, not a whole number", it.what(), it.shown())
		}
		into = append(into, n)
	}
	return into, nil
}
