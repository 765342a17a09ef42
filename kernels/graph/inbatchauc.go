package graph

// InBatchAUC is a loss whose smaller values order a batch better: the mean over all two samples, p with a label above
// 0.5 and q without, of log(1 + exp(z_q − z_p)), of logits and labels, each [n 1]. It is float64 in the batch's order,
// the result float32; of no such two it is 0. A logit that is NaN and has a partner makes it NaN.
type InBatchAUC struct{}

// InBatchAUCGrad is its gradient by the logits, in float64 and rounded.
type InBatchAUCGrad struct{}

// Name is "in_batch_auc".
func (InBatchAUC) Name() string { return "in_batch_auc" }

// Name is "in_batch_auc_grad".
func (InBatchAUCGrad) Name() string { return "in_batch_auc_grad" }

// Shape wants two of [n 1].
func (InBatchAUC) Shape(in []Shape) (Shape, error) { return Fixed(), scores(in) }

// Shape wants two of [n 1].
func (InBatchAUCGrad) Shape(in []Shape) (Shape, error) { return PerSample(1), scores(in) }

// Backward is [InBatchAUCGrad]; labels have no gradient.
func (InBatchAUC) Backward(b *Builder, at Node, dy ID, want []bool) []ID {
	return lossBackward(b, at, dy, want, InBatchAUCGrad{})
}

// Backward reports: there is no second derivative.
func (InBatchAUCGrad) Backward(b *Builder, at Node, _ ID, _ []bool) []ID { return once(b, at) }

// Cost is that of as many pairs as there can be, with exp and log1p each.
func (InBatchAUC) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{6 * float64(n) * float64(n), moved(n, in...) + moved(n, out)}
}

// Cost is that of as many pairs as there can be, twice, with exp each.
func (InBatchAUCGrad) Cost(n int, in []Shape, out Shape) Cost {
	return Cost{7 * float64(n) * float64(n), moved(n, in...) + moved(n, out)}
}
