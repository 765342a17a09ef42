"""Asks a server with Triton's own client, tensors as JSON and as bytes, and prints what it says as one
JSON object. Arguments: host:port, model."""

import json
import sys

import numpy as np
import tritonclient.http as triton

address, model = sys.argv[1:]
client = triton.InferenceServerClient(address)
said = {
    "live": client.is_server_live(),
    "ready": client.is_server_ready(),
    "model ready": client.is_model_ready(model),
    "version ready": client.is_model_ready(model, "1"),
    "no such version": client.is_model_ready(model, "77"),
    "no such model": client.is_model_ready("nobody"),
    "server": client.get_server_metadata()["name"],
    "metadata": client.get_model_metadata(model),
}


def ask(binary, **rows):
    inputs = []
    for name, values in rows.items():
        array = np.array(values, dtype=np.int64)
        inputs.append(triton.InferInput(name, list(array.shape), "INT64"))
        inputs[-1].set_data_from_numpy(array, binary_data=binary)
    outputs = [triton.InferRequestedOutput("score", binary_data=binary)]
    try:
        answer = client.infer(model, inputs, outputs=outputs, request_id="r1")
    except triton.InferenceServerException as e:
        return e.message()
    got = answer.get_response()
    return [got["id"], got["model_version"], answer.as_numpy("score").tolist()]


for way, binary in (("json", False), ("bytes", True)):
    said[way] = ask(binary, user=[5, 6], movie=[7, 8])
said["wrong"] = ask(True, user=[5, 6])
print(json.dumps(said))
