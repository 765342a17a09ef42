"""Asks a model server with TensorFlow's own client: tf_client.py <grpc> <http> <model> <users> <movies>.

users and movies are lists of ids as JSON. Prints one JSON object with every answer.
"""

import json
import sys
import urllib.error
import urllib.request

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_management_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)

grpc_addr, http_addr, model, users, movies = sys.argv[1:]
users, movies = json.loads(users), json.loads(movies)
channel = grpc.insecure_channel(grpc_addr)
prediction = prediction_service_pb2_grpc.PredictionServiceStub(channel)
models = model_service_pb2_grpc.ModelServiceStub(channel)
answers = {}


def request(shape=None, dtype=tf.int64, name=model, version=None):
    q = predict_pb2.PredictRequest()
    q.model_spec.name = name
    q.model_spec.signature_name = "serving_default"
    if version is not None:
        q.model_spec.version.value = version
    for key, ids in (("user", users), ("movie", movies)):
        q.inputs[key].CopyFrom(tf.make_tensor_proto(np.array(ids), dtype=dtype, shape=shape))
    return q


def scores(q):
    r = prediction.Predict(q, timeout=120)
    score = tf.make_ndarray(r.outputs["score"])
    assert score.dtype == np.float32, score.dtype
    assert r.model_spec.name == model and r.model_spec.version.value == 1, r.model_spec
    return score.reshape(-1).tolist()


def refused(call, q):
    try:
        call(q, timeout=120)
    except grpc.RpcError as e:
        return [e.code().name, e.details()]
    return ["OK", ""]


n = len(users)
q = request()
assert q.inputs["user"].tensor_content and not q.inputs["user"].int64_val
answers["content"] = scores(q)
answers["column"] = scores(request(shape=[n, 1]))
answers["int32"] = scores(request(dtype=tf.int32))
answers["version"] = scores(request(version=1))
q = request()
for key, ids in (("user", users), ("movie", movies)):
    q.inputs[key].ClearField("tensor_content")
    q.inputs[key].int64_val.extend(ids)
answers["int64_val"] = scores(q)
q = request()
q.inputs["user"].CopyFrom(tf.make_tensor_proto(np.full(n, users[0]), dtype=tf.int64))
q.inputs["user"].ClearField("tensor_content")
q.inputs["user"].int64_val.append(users[0])  # stands for all the rest
answers["filled up"] = scores(q)

answers["unknown model"] = refused(prediction.Predict, request(name="nobody"))
answers["unknown version"] = refused(prediction.Predict, request(version=7))
answers["floats"] = refused(prediction.Predict, request(dtype=tf.float32))

q = get_model_status_pb2.GetModelStatusRequest()
q.model_spec.name = model
answers["status"] = [
    [s.version, get_model_status_pb2.ModelVersionStatus.State.Name(s.state), s.status.error_code]
    for s in models.GetModelStatus(q, timeout=120).model_version_status
]
q.model_spec.name = "nobody"
answers["status of nobody"] = refused(models.GetModelStatus, q)

q = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
q.model_spec.name = model
defs = get_model_metadata_pb2.SignatureDefMap()
assert prediction.GetModelMetadata(q, timeout=120).metadata["signature_def"].Unpack(defs)
signature = defs.signature_def["serving_default"]
answers["inputs"] = {k: tf.dtypes.as_dtype(v.dtype).name for k, v in signature.inputs.items()}
answers["outputs"] = {k: tf.dtypes.as_dtype(v.dtype).name for k, v in signature.outputs.items()}


def rest(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen("http://%s/v1/models/%s" % (http_addr, path), data, timeout=120) as r:
            return [r.status, json.load(r)]
    except urllib.error.HTTPError as e:
        return [e.code, json.load(e)]


instances = [{"user": u, "movie": m} for u, m in zip(users, movies)]
answers["rest rows"] = rest(model + ":predict", {"instances": instances})
answers["rest columns"] = rest(model + ":predict", {"inputs": {"user": users, "movie": movies}})
answers["rest version"] = rest(model + "/versions/1:predict", {"signature_name": "serving_default", "instances": instances})
answers["rest status"] = rest(model)
answers["rest nobody"] = rest("nobody:predict", {"instances": instances})[0]

# Last, because it takes the model away: a reload that configures nothing.
q = model_management_pb2.ReloadConfigRequest()
q.config.model_config_list.SetInParent()
r = models.HandleReloadConfigRequest(q, timeout=120)
answers["reload"] = r.status.error_code
answers["after reload"] = refused(prediction.Predict, request())
print(json.dumps(answers))
