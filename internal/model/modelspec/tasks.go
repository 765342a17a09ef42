package modelspec

import (
	"fmt"
	"math"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/kernels/graph"
)

// Task is what a model predicts.
type Task struct {
	Name  string
	Layer string // that gives its logit, or with MSE its prediction
	Loss  model.Task_Loss
}

// head is a task in a graph.
type head struct {
	Task
	logit, score graph.ID
	weight       float32 // of the loss
}

// tasks are those of a spec: the last layer's where none is declared.
func tasks(spec *model.ModelSpec) []*model.Task {
	if len(spec.GetTasks()) > 0 || len(spec.GetLayers()) == 0 {
		return spec.GetTasks()
	}
	return []*model.Task{{Name: "score", Logit: spec.GetLayers()[len(spec.GetLayers())-1].GetName()}}
}

// heads finds what the tasks stand on.
func (n *network) heads() ([]head, error) {
	var all []head
	for i, t := range tasks(n.spec) {
		path := fmt.Sprintf("tasks[%d]", i)
		ids, word := n.values[t.GetLogit()], t.GetLogit()
		at0, layer := n.index[word]
		if !layer {
			return nil, at(path, "task %q learns %q, which is no layer: name one", t.GetName(), word)
		}
		if len(ids) != 1 || !n.shape(ids[0]).Equal(graph.PerSample(1)) {
			return nil, at(path, "task %q learns layer %q, which does not have one number a sample: put a layer of 1 unit on it", t.GetName(), word)
		}
		n.used[word] = true
		h := head{Task: Task{t.GetName(), word, t.GetLoss()}, logit: n.logits[word], score: ids[0], weight: 1}
		if t.Weight != nil {
			h.weight = t.GetWeight()
		}
		activation := n.spec.GetLayers()[at0].GetActivation()
		switch t.GetLoss() {
		case model.Task_CROSS_ENTROPY:
			if activation == model.Activation_LINEAR {
				h.score = graph.None // the logit's sigmoid
			} else if activation != model.Activation_SIGMOID {
				return nil, at(path, "task %q learns layer %q, which ends in %v: a logit is LINEAR or ends in SIGMOID", t.GetName(), word, activation)
			}
		case model.Task_MSE:
			h.logit = h.score
		default:
			return nil, at(path, "task %q has the loss %v, which is not computed by this build: use CROSS_ENTROPY or MSE", t.GetName(), t.GetLoss())
		}
		all = append(all, h)
	}
	for i := range all {
		if all[i].score == graph.None {
			all[i].score = n.Add("score of "+all[i].Name, graph.Sigmoid{}, all[i].logit)
		}
	}
	return all, nil
}

// train adds the losses and all gradients: by the tensors of rows, then by the variables.
func (n *network) train(heads []head) {
	labels := make([]graph.ID, len(heads))
	for i, h := range heads {
		labels[i] = n.Input("label of "+h.Name, 1)
		n.Output("score of "+h.Name, h.score)
	}
	total := graph.None
	for i, h := range heads {
		var loss graph.ID
		if h.Loss == model.Task_MSE {
			loss = n.Add("loss of "+h.Name, graph.MSE{}, h.logit, labels[i])
		} else {
			loss = n.Add("loss of "+h.Name, graph.CrossEntropy{}, h.logit, labels[i])
		}
		if h.weight != 1 {
			loss = n.Add("", graph.Scale{Factor: h.weight}, loss)
		}
		if total == graph.None {
			total = loss
		} else {
			total = n.Add("", graph.Add{}, total, loss)
		}
	}
	n.Output("loss", total)
	if n.spec.GetReduction() == model.ModelSpec_SUM {
		total = n.Add("", graph.TimesBatch{}, total)
	}
	by := append(append([]graph.ID(nil), n.tensors...), n.weights...)
	for i, d := range n.Gradients(total, by...) {
		n.Output(fmt.Sprintf("gradient %d", i), d)
	}
}

// task checks what a spec says of one.
func (c *complaints) task(t *model.Task) {
	what := fmt.Sprintf("task %q", t.GetName())
	if w := float64(t.GetWeight()); t.Weight != nil && (math.IsNaN(w) || math.IsInf(w, 0) || w <= 0) {
		c.add("%s has the weight %g: give a finite number above 0", what, w)
	}
	if l := t.GetLabel(); l != nil {
		c.label(what+"'s label", l)
		if l.GetRaw() && t.GetLoss() == model.Task_CROSS_ENTROPY {
			c.add("%s has a raw label, which cross entropy cannot learn: give a threshold, or the loss MSE", what)
		}
	}
}
