package layout_test

import (
	"encoding/binary"

	"google.golang.org/protobuf/encoding/protowire"
)

// What the readers read, written with another library.

func bytesField(num protowire.Number, content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), content)
}

func varintField(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func fixed64s(fids []uint64) []byte {
	var out []byte
	for _, fid := range fids {
		out = binary.LittleEndian.AppendUint64(out, fid)
	}
	return out
}

// feature is a Feature with fid_v1_list (kind 1) or fid_v2_list (kind 2).
func feature(kind protowire.Number, fids ...uint64) []byte {
	return bytesField(kind, bytesField(1, fixed64s(fids)))
}

func namedFeature(name string, feature []byte) []byte {
	return bytesField(1, append(bytesField(1, []byte(name)), bytesField(2, feature)...))
}

func featureList(name string, shared bool, features ...[]byte) []byte {
	list := bytesField(1, []byte(name))
	for _, f := range features {
		list = append(list, bytesField(2, f)...)
	}
	if shared {
		list = append(list, varintField(3, 1)...)
	}
	return bytesField(1, list)
}

// examples writes w as one Example for each sample.
func (w *world) examples() [][]byte {
	out := make([][]byte, w.batch)
	for s := range out {
		for _, name := range w.featureNames() {
			out[s] = append(out[s], namedFeature(name, feature(2, w.sample(name, s)...))...)
		}
	}
	return out
}

// exampleBatch writes w as one ExampleBatch.
func (w *world) exampleBatch() []byte {
	var out []byte
	for _, name := range w.featureNames() {
		rows, ok := w.rows[name]
		if !ok {
			continue
		}
		var features [][]byte
		for _, row := range rows {
			features = append(features, feature(2, row...))
		}
		out = append(out, featureList(name, w.shared[name], features...)...)
	}
	return append(out, varintField(3, uint64(w.batch))...)
}

// instances writes w as one Instance for each sample, with named features.
func (w *world) instances() [][]byte {
	out := make([][]byte, w.batch)
	for s := range out {
		for _, name := range w.featureNames() {
			ids := w.sample(name, s)
			half := len(ids) / 2
			f := bytesField(6, bytesField(1, fixed64s(ids[half:]))) // fid_list, which comes second
			f = append(f, bytesField(1, []byte(name))...)
			f = append(f, bytesField(2, fixed64s(ids[:half]))...)
			out[s] = append(out[s], bytesField(9, f)...)
		}
	}
	return out
}
