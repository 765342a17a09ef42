package input

import "github.com/monolith-go/monolith/internal/model/runtime"

// Decode is the sample of a record that holds one, in JSON or a tf.train.Example, whatever rules say.
func (d *Decoder) Decode(record []byte) (runtime.Sample, error) {
	read := d.readJSON
	if d.options.Format == Example {
		read = d.readExample
	}
	defer func(was bool) { d.direct = was }(d.direct)
	d.direct = false // its ids are wanted
	d.reset()
	if err := read(record); err != nil {
		return runtime.Sample{}, err
	}
	if err := d.made(); err != nil {
		return runtime.Sample{}, err
	}
	return d.sample, nil
}
