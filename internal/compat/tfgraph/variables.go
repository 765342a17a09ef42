package tfgraph

import (
	"github.com/wamuir/graft/tensorflow/core/framework/types_go_proto"
	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"

	"github.com/monolith-go/monolith/internal/model/tensorbundle"
)

// variable adds one whose numbers are restored from the SavedModel's bundle, and returns its handle.
func (b *builder) variable(t tensorbundle.Tensor) tensor {
	kind := float32s
	if t.Ints != nil {
		kind = int64s
	}
	handle := b.add(t.Name, "VarHandleOp", attrs{"dtype": of(kind), "shape": shaped(t.Shape...), "shared_name": text(t.Name), "container": text("")})
	b.saves, b.handles, b.kinds = append(b.saves, t), append(b.handles, handle), append(b.kinds, kind)
	return handle
}

// read is a variable's numbers.
func (b *builder) read(handle tensor, kind types_go_proto.DataType) tensor {
	return b.add(string(handle)+"/read", "ReadVariableOp", attrs{"dtype": of(kind)}, handle)
}

// saver adds the operations that save and restore all variables, by which loaders find their numbers.
func (b *builder) saver() *for_core_protos_go_proto.SaverDef {
	names, slices := make([]string, len(b.saves)), make([]string, len(b.saves))
	values := make([]tensor, len(b.saves))
	for i, t := range b.saves {
		names[i], values[i] = t.Name, b.add("save/value", "ReadVariableOp", attrs{"dtype": of(b.kinds[i])}, b.handles[i])
	}
	file := b.texts("save/default", "model")
	scalar := b.add("save/first", "Reshape", attrs{"T": of(texts), "Tshape": of(int32s)}, file, b.ints())
	path := b.add("save/Const", "PlaceholderWithDefault", attrs{"dtype": of(texts), "shape": shaped()}, scalar)
	allNames, allSlices := b.texts("save/names", names...), b.texts("save/slices", slices...)
	b.add("save/SaveV2", "SaveV2", attrs{"dtypes": ofList(b.kinds...)}, append([]tensor{path, allNames, allSlices}, values...)...)
	saved := b.add("save/control_dependency", "Identity", attrs{"T": of(texts)}, path, "^save/SaveV2")
	restored := b.add("save/RestoreV2", "RestoreV2", attrs{"dtypes": ofList(b.kinds...)}, path, allNames, allSlices)
	var done []tensor
	for i, handle := range b.handles {
		value := restored
		if i > 0 {
			value += tensor(":" + itoa(i))
		}
		done = append(done, "^"+b.add("save/Assign", "AssignVariableOp", attrs{"dtype": of(b.kinds[i]), "validate_shape": truth(false)}, handle, value))
	}
	all := b.add("save/restore_all", "NoOp", nil, done...)
	return &for_core_protos_go_proto.SaverDef{FilenameTensorName: string(path) + ":0", SaveTensorName: string(saved) + ":0",
		RestoreOpName: string(all), MaxToKeep: 5, Version: for_core_protos_go_proto.SaverDef_V2}
}
