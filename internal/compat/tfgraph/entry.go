package tfgraph

import (
	"strconv"

	"github.com/wamuir/graft/tensorflow/core/protobuf/for_core_protos_go_proto"
)

// remoteDeadline is what the original's training writes into the calls, in milliseconds.
const remoteDeadline = 30000

// Entry is the SavedModel of an exported entry: the calls by which the original's entries ask their shards, so that
// tools which look for them find the model's name and its shards. What model servers here compute
// stands in the files beside it.
func Entry(model string, shards int) ([]byte, error) {
	var g graph
	inputs, outputs := map[string]*for_core_protos_go_proto.TensorInfo{}, map[string]*for_core_protos_go_proto.TensorInfo{}
	asked, answered := g.texts("raw_lookup/inputs", "id", "id_split"), g.texts("raw_lookup/outputs", "flat_emb")
	for i := range shards {
		shard := "ps_" + strconv.Itoa(i)
		ids, split := g.input(shard+"/id", int64s, -1), g.input(shard+"/id_split", int64s, -1)
		call := g.add(shard+"/remote_predict", "TfServingRemotePredict", attrs{
			"T": ofList(int64s, int64s), "output_types": ofList(float32s),
			"model_name": text(model + ":" + shard), "old_model_name": text(shard), "model_version": number(-1), "signature_name": text("raw_lookup"),
			"task": number(-1), "fail_op_on_rpc_error": truth(true), "max_rpc_deadline_millis": number(remoteDeadline),
		}, asked, ids, split, answered)
		inputs[shard+"/id"], inputs[shard+"/id_split"] = info(ids, int64s, -1), info(split, int64s, -1)
		outputs[shard+"/flat_emb"] = info(call+":2", float32s, -1)
	}
	return g.saved(&for_core_protos_go_proto.MetaGraphDef{
		SignatureDef: map[string]*for_core_protos_go_proto.SignatureDef{"serving_default": signature(inputs, outputs)},
	})
}
