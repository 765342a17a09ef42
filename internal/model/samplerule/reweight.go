package samplerule

import (
	"cmp"
	"math"

	"github.com/monolith-go/monolith/events/model"
)

// MaxActions bounds the actions that a rule names.
const MaxActions = 4096

// Reweight is what a rule says of actions, made ready.
type Reweight struct {
	add     bool
	alone   bool          // what came before is not made up for
	ranks   map[int64]int // 1 is the strongest
	actions map[int64]action
}

// action is what one says of a sample.
type action struct {
	weight          float64
	label, opposite float32 // as they are learnt
}

// Ranks of actions that are not among those with one.
const (
	unranked = MaxActions + 1
	idle     = unranked + 1 // there is no action
)

// ReweightOf makes a rule's ready, for a task that learns of a number what learnt says. With alone a sample counts
// what its own actions say, whatever came before it.
func ReweightOf(r *model.SampleRule_Reweight, learnt func(float64) float32, alone bool) *Reweight {
	made := &Reweight{add: r.GetAdd(), alone: alone, ranks: map[int64]int{}, actions: map[int64]action{}}
	for i, a := range r.GetActionPriority() {
		made.ranks[a] = 1 + i
	}
	for _, a := range r.GetReweight() {
		weight := 1.0
		if a.Weight != nil {
			weight = float64(a.GetWeight())
		}
		made.actions[a.GetAction()] = action{weight, learnt(a.GetLabel()), learnt(-a.GetLabel())}
	}
	return made
}

// Of says how often a sample counts, 0 for one that is dropped, and what it learns: own is what it would learn
// without its actions.
func (r *Reweight) Of(own float32, before, actions []int64) (count float64, label float32) {
	earlier, was := r.strongest(before)
	strongest, is := r.strongest(actions)
	switch {
	case is == idle && was == idle:
		return 1, own
	case is >= was:
		return 0, own
	}
	label, count = own, r.count(actions, strongest)
	if a, ok := r.actions[strongest]; ok && is < unranked {
		label = a.label
	}
	learnt, ok := r.actions[earlier]
	if !ok || was >= unranked || r.alone {
		return count, label
	}
	switch counted := r.count(before, earlier); {
	case learnt.label != label:
		return count + counted, label
	case counted > count:
		return counted - count, learnt.opposite
	default:
		return count - counted, label
	}
}

// strongest finds that of a sample's actions, and its rank.
func (r *Reweight) strongest(actions []int64) (strongest int64, rank int) {
	if len(actions) == 0 {
		return 0, idle
	}
	rank = unranked
	for _, a := range actions {
		if n, ok := r.ranks[a]; ok && n < rank {
			strongest, rank = a, n
		}
	}
	return strongest, rank
}

// count is how often a sample of these actions counts, of which those with a rank do so alone that are the strongest.
func (r *Reweight) count(actions []int64, strongest int64) float64 {
	n := 1.0
	for _, a := range actions {
		if _, ranked := r.ranks[a]; ranked && a != strongest {
			continue
		}
		if found, ok := r.actions[a]; ok && r.add {
			n += found.weight
		} else if ok {
			n *= found.weight
		}
	}
	return min(n, math.MaxFloat32)
}

// reweight checks what a rule says of actions.
func (c *complaints) reweight(r *model.SampleRule_Reweight) {
	if r.GetActions() == "" || r.GetPreActions() == "" {
		c.add("reweighs without actions or pre_actions: name the fields of a record that have them")
	}
	if len(r.GetReweight()) == 0 {
		c.add("reweighs no action: give each its weight and label in reweight")
	}
	if n := max(len(r.GetReweight()), len(r.GetActionPriority())); n > MaxActions {
		c.add("names %d actions: %d are allowed", n, MaxActions)
	}
	seen := map[int64]bool{}
	for _, a := range r.GetActionPriority() {
		if seen[a] {
			c.add("has the action %d twice in action_priority: name it once", a)
		}
		seen[a] = true
	}
	if len(c.tasks) == 0 {
		return // which is said elsewhere
	}
	t := c.tasks[TaskOf(r, c.tasks)]
	if name := r.GetLabel(); name != "" && t.GetName() != name {
		c.add("sets the label of %q, which is no task: name one", name)
	}
	label := cmp.Or(t.GetLabel(), c.spec.GetLabel())
	clear(seen)
	for _, a := range r.GetReweight() {
		if seen[a.GetAction()] {
			c.add("reweighs the action %d twice: do so once", a.GetAction())
		}
		seen[a.GetAction()] = true
		l, threshold := a.GetLabel(), label.GetThreshold()
		switch {
		case !(math.Abs(l) > 0 && math.Abs(l) <= math.MaxFloat32):
			c.add("gives the action %d the label %g, which has no opposite that takes it back: give a finite number other than 0", a.GetAction(), l)
		case !label.GetRaw() && (l >= threshold) == (-l >= threshold):
			c.add("gives the action %d the label %g, and %g, which takes it back, is learnt as the same: give one so far from 0 that the label's threshold, %g, lies between the two", a.GetAction(), l, -l, threshold)
		}
	}
}

// TaskOf is which task's label a rule sets: the first where it names none, or one that is not there.
func TaskOf(r *model.SampleRule_Reweight, tasks []*model.Task) int {
	for i, t := range tasks {
		if t.GetName() == r.GetLabel() {
			return i
		}
	}
	return 0
}
