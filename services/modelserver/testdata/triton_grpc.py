"""Asks a server with Triton's own client over gRPC, tensors as bytes and in typed fields, and prints what it
says as one JSON object. Arguments: host:port, model."""

import json
import sys

import numpy as np
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2, service_pb2_grpc
import grpc

address, model = sys.argv[1:]
client = triton.InferenceServerClient(address)
described = client.get_model_metadata(model, "1", as_json=True)
said = {
    "live": client.is_server_live(),
    "ready": client.is_server_ready(),
    "model ready": client.is_model_ready(model),
    "version ready": client.is_model_ready(model, "1"),
    "no such version": client.is_model_ready(model, "77"),
    "no such model": client.is_model_ready("nobody"),
    "server": client.get_server_metadata(as_json=True)["name"],
    "metadata": described,
}


def ask(name, **rows):
    inputs = []
    for column, values in rows.items():
        array = np.array(values, dtype=np.int64)
        inputs.append(triton.InferInput(column, list(array.shape), "INT64"))
        inputs[-1].set_data_from_numpy(array)
    try:
        answer = client.infer(name, inputs, outputs=[triton.InferRequestedOutput("score")], request_id="r1")
    except triton.InferenceServerException as e:
        return [e.status(), e.message()]
    got = answer.get_response()
    return [got.id, got.model_version, answer.as_numpy("score").tolist()]


def ask_typed(**rows):
    request = service_pb2.ModelInferRequest(model_name=model, id="r1")
    for column, values in rows.items():
        tensor = request.inputs.add(name=column, datatype="INT64", shape=[len(values)])
        tensor.contents.int64_contents.extend(values)
    with grpc.insecure_channel(address) as channel:
        got = service_pb2_grpc.GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=120)
    return [got.id, got.model_version, list(got.outputs[0].contents.fp32_contents)]


said["bytes"] = ask(model, user=[5, 6], movie=[7, 8])
said["typed"] = ask_typed(user=[5, 6], movie=[7, 8])
said["wrong"] = ask(model, user=[5, 6])
said["nobody"] = ask("nobody", user=[5, 6])
print(json.dumps(said))
