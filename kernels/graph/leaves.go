package graph

// Input is what comes with a batch: n times Dims.
type Input struct{ Dims []int }

// Weight is a variable of the model. It does not change while a graph is run.
type Weight struct{ Dims []int }

// Const is Value, in every place of As.
type Const struct {
	Value float32
	As    Shape
}

// Input adds an [Input].
func (b *Builder) Input(name string, dims ...int) ID { return b.Add(name, Input{dims}) }

// Weight adds a [Weight].
func (b *Builder) Weight(name string, dims ...int) ID { return b.Add(name, Weight{dims}) }

// Const adds a [Const].
func (b *Builder) Const(v float32, as Shape) ID { return b.Add("", Const{v, as}) }

// Name is "input".
func (Input) Name() string { return "input" }

// Name is "weight".
func (Weight) Name() string { return "weight" }

// Name is "const".
func (Const) Name() string { return "const" }

// Shape takes no operands.
func (o Input) Shape(in []Shape) (Shape, error) { return PerSample(o.Dims...), operands(in, 0) }

// Shape takes no operands.
func (o Weight) Shape(in []Shape) (Shape, error) { return Fixed(o.Dims...), operands(in, 0) }

// Shape takes no operands.
func (o Const) Shape(in []Shape) (Shape, error) { return o.As, operands(in, 0) }

// Backward has nothing to add: nothing comes before it.
func (Input) Backward(*Builder, Node, ID, []bool) []ID { return nil }

// Backward has nothing to add: nothing comes before it.
func (Weight) Backward(*Builder, Node, ID, []bool) []ID { return nil }

// Backward has nothing to add: nothing comes before it.
func (Const) Backward(*Builder, Node, ID, []bool) []ID { return nil }

// Cost is nothing: it is there.
func (Input) Cost(int, []Shape, Shape) Cost { return Cost{} }

// Cost is nothing: it is there.
func (Weight) Cost(int, []Shape, Shape) Cost { return Cost{} }

// Cost is that of writing it.
func (Const) Cost(n int, _ []Shape, out Shape) Cost { return Cost{Bytes: moved(n, out)} }
