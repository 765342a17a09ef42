package modelspec

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/monolith-go/monolith/events/model"
	"github.com/monolith-go/monolith/internal/model/samplerule"
	"github.com/monolith-go/monolith/kernels/graph"
)

// Task is what a model predicts.
type Task struct {
	Name  string
	Layer string // that gives its logit, or with MSE its prediction
	Loss  model.Task_Loss
	Label *model.Label // its own or the model's; nil: every sample's is 1

	WeightField, MaskField string // none: empty
	Reweighted             bool   // sample rules weigh its samples
}

// Weighted says whether samples have weights in the task's loss.
func (t *Task) Weighted() bool { return t.WeightField != "" || t.MaskField != "" || t.Reweighted }

// head is a task in a graph.
type head struct {
	Task
	logit, score graph.ID
	towers       []graph.ID // of IN_BATCH_SOFTMAX, and log q behind them
	weight       float32    // of the loss
}

// Tasks are those of a spec: the last layer's where none is declared.
func Tasks(spec *model.ModelSpec) []*model.Task {
	if len(spec.GetTasks()) > 0 || len(spec.GetLayers()) == 0 {
		return spec.GetTasks()
	}
	return []*model.Task{{Name: "score", Logit: spec.GetLayers()[len(spec.GetLayers())-1].GetName()}}
}

// heads finds what the tasks stand on.
func (n *network) heads() ([]head, error) {
	var all []head
	for i, t := range Tasks(n.spec) {
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
		h := head{Task: Task{
			Name: t.GetName(), Layer: word, Loss: t.GetLoss(), Label: cmp.Or(t.GetLabel(), n.spec.GetLabel()),
			WeightField: t.GetWeightField(), MaskField: t.GetMaskField(), Reweighted: samplerule.Reweighted(n.spec),
		}, logit: n.logits[word], score: ids[0], weight: 1}
		if t.Weight != nil {
			h.weight = t.GetWeight()
		}
		activation := n.spec.GetLayers()[at0].GetActivation()
		switch t.GetLoss() {
		case model.Task_CROSS_ENTROPY, model.Task_IN_BATCH_AUC:
			if activation == model.Activation_LINEAR {
				h.score = graph.None // the logit's sigmoid
			} else if activation != model.Activation_SIGMOID {
				return nil, at(path, "task %q learns layer %q, which ends in %v: a logit is LINEAR or ends in SIGMOID", t.GetName(), word, activation)
			}
		case model.Task_MSE:
			h.logit = h.score
		case model.Task_IN_BATCH_SOFTMAX:
			if h.towers = n.towers[word]; len(h.towers) != 2 || activation != model.Activation_LINEAR {
				return nil, at(path, "task %q has the loss %v and learns layer %q, which is no dot of two towers: name a dot layer without an activation", t.GetName(), t.GetLoss(), word)
			}
			if t.GetLogQ() != "" {
				q, err := n.logQ(t)
				if err != nil {
					return nil, at(path, "task %q: %w", t.GetName(), err)
				}
				h.towers = append(slices.Clone(h.towers), q)
			}
		default:
			return nil, at(path, "task %q has the unknown loss %d: use CROSS_ENTROPY, MSE, IN_BATCH_SOFTMAX or IN_BATCH_AUC", t.GetName(), t.GetLoss())
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
	labels, weights := make([]graph.ID, len(heads)), make([]graph.ID, len(heads))
	for i, h := range heads {
		labels[i] = n.Input("label of "+h.Name, 1)
		n.Output("score of "+h.Name, h.score)
	}
	for i, h := range heads {
		if h.Weighted() {
			weights[i] = n.Input("weight of "+h.Name, 1)
		}
	}
	losses, total := make([]graph.ID, len(heads)), graph.None
	for i, h := range heads {
		losses[i] = n.loss(h, labels[i], weights[i])
		loss := losses[i]
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
	for i, h := range heads {
		n.Output("loss of "+h.Name, losses[i])
	}
	for _, a := range n.added {
		n.Output("loss of layer "+a.Name, a.loss)
	}
	total = n.penalize(total)
	by := append(append([]graph.ID(nil), n.tensors...), n.weights...)
	for i, d := range n.Gradients(total, by...) {
		n.Output(fmt.Sprintf("gradient %d", i), d)
	}
}

// loss adds a task's, of the mean sample.
func (n *network) loss(h head, label, weight graph.ID) graph.ID {
	name, in := "loss of "+h.Name, []graph.ID{h.logit, label}
	if h.Weighted() {
		in = append(in, weight)
	}
	switch h.Loss {
	case model.Task_MSE:
		return n.Add(name, graph.MSE{Weighted: h.Weighted()}, in...)
	case model.Task_IN_BATCH_AUC:
		return n.Add(name, graph.InBatchAUC{}, in...)
	case model.Task_IN_BATCH_SOFTMAX:
		return n.Add(name, graph.InBatchSoftmax{LogQ: len(h.towers) > 2}, h.towers...)
	}
	return n.Add(name, graph.CrossEntropy{Weighted: h.Weighted()}, in...)
}

// task checks what a spec says of one.
func (c *complaints) task(spec *model.ModelSpec, t *model.Task) {
	what := fmt.Sprintf("task %q", t.GetName())
	if w := float64(t.GetWeight()); t.Weight != nil && (math.IsNaN(w) || math.IsInf(w, 0) || w <= 0) {
		c.add("%s has the weight %g: give a finite number above 0", what, w)
	}
	if t.GetLabel() != nil {
		c.label(what+"'s label", t.GetLabel())
	} else if spec.GetLabel() == nil && t.GetLoss() != model.Task_IN_BATCH_SOFTMAX {
		c.add("%s has no label, and the model has none: give one", what)
	}
	if l := cmp.Or(t.GetLabel(), spec.GetLabel()); l.GetRaw() && t.GetLoss() != model.Task_MSE {
		c.add("%s has a raw label, which only MSE learns: give a threshold, or the loss MSE", what)
	}
	if t.GetLogQ() != "" && t.GetLoss() != model.Task_IN_BATCH_SOFTMAX {
		c.add("%s has log_q and the loss %v: only IN_BATCH_SOFTMAX is corrected by it", what, t.GetLoss())
	}
	inBatch := t.GetLoss() == model.Task_IN_BATCH_SOFTMAX || t.GetLoss() == model.Task_IN_BATCH_AUC
	for _, field := range []string{t.GetWeightField(), t.GetMaskField()} {
		if len(field) > MaxName {
			c.add("%s reads a weight or a mask from a field of %d bytes: %d are allowed", what, len(field), MaxName)
		}
		if field != "" && inBatch {
			c.add("%s has the loss %v, which compares the samples of a batch with one another, and a weight_field or a mask_field: leave them out", what, t.GetLoss())
		}
	}
}
