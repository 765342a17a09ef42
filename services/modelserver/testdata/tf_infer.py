"""Asks for classes and numbers with TensorFlow's own stubs and HTTP: tf_infer.py <grpc> <http> <model> <rows>.

rows is a list of [user, history, movie, country, age, vec] as JSON. Prints the answers as JSON.
"""

import base64
import gzip
import json
import sys
import urllib.error
import urllib.request

import grpc
import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    get_model_metadata_pb2,
    inference_pb2,
    prediction_service_pb2_grpc,
    regression_pb2,
)

grpc_addr, http_addr, model, rows = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
prediction = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(grpc_addr))


def example(row, names=("user", "history", "movie", "country", "age", "vec")):
    e = tf.train.Example()
    for name, value in zip(("user", "history", "movie", "country", "age", "vec"), row):
        if name not in names:
            continue
        values = value if isinstance(value, list) else [value]
        f = e.features.feature[name]
        if name == "country":
            f.bytes_list.value.extend(v.encode() for v in values)
        elif name in ("age", "vec"):
            f.float_list.value.extend(values)
        else:
            f.int64_list.value.extend(values)
    return e


def ask(q, call, signature=None):
    q.model_spec.name = model
    q.model_spec.signature_name = signature or ""
    try:
        return call(q, timeout=120)
    except grpc.RpcError as e:
        return [e.code().name, e.details()]


def classes(result):
    return [[[c.label, c.score] for c in row.classes] for row in result.classifications]


def values(result):
    return [r.value for r in result.regressions]


answers = {}
q = classification_pb2.ClassificationRequest()
q.input.example_list.examples.extend(example(r) for r in rows)
r = ask(q, prediction.Classify, "like")
answers["classify"] = classes(r.result)
answers["classified by"] = [r.model_spec.name, r.model_spec.version.value, r.model_spec.signature_name]
answers["no output named"] = ask(q, prediction.Classify)
answers["a number's class"] = ask(q, prediction.Classify, "length")

q = regression_pb2.RegressionRequest()
q.input.example_list.examples.extend(example(r) for r in rows)
answers["regress"] = values(ask(q, prediction.Regress, "length").result)
answers["empty"] = ask(regression_pb2.RegressionRequest(), prediction.Regress, "length")

q = inference_pb2.MultiInferenceRequest()
of_row = ("history", "movie", "vec")  # the rest is the same for all, and an example's own counts
q.input.example_list_with_context.context.CopyFrom(example([rows[0][0], [7, 7], 1, rows[0][3], rows[0][4], [9, 9]]))
q.input.example_list_with_context.examples.extend(example(r, of_row) for r in rows)
for signature, method in (("length", "regress"), ("like", "classify")):
    t = q.tasks.add()
    t.model_spec.name, t.model_spec.signature_name, t.method_name = model, signature, "tensorflow/serving/" + method
r = prediction.MultiInference(q, timeout=120)
answers["multi"] = [values(r.results[0].regression_result), classes(r.results[1].classification_result)]

q = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
q.model_spec.name = model
defs = get_model_metadata_pb2.SignatureDefMap()
assert prediction.GetModelMetadata(q, timeout=120).metadata["signature_def"].Unpack(defs)
answers["signatures"] = {k: v.method_name for k, v in defs.signature_def.items()}


def rest(verb, body, zipped=False):
    data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
    if zipped:
        data, headers["Content-Encoding"], headers["Accept-Encoding"] = gzip.compress(data), "gzip", "gzip"
    q = urllib.request.Request("http://%s/v1/models/%s:%s" % (http_addr, model, verb), data, headers)
    try:
        with urllib.request.urlopen(q, timeout=120) as r:
            answer = r.read()
            if zipped and r.headers.get("Content-Encoding") == "gzip":
                answer = gzip.decompress(answer)
            return [r.status, json.loads(answer)]
    except urllib.error.HTTPError as e:
        return [e.code, json.load(e)]


def shown(row, names=("user", "history", "movie", "country", "age", "vec")):
    e = {k: v for k, v in zip(("user", "history", "movie", "country", "age", "vec"), row) if k in names}
    if "country" in e:
        e["country"] = {"b64": base64.b64encode(e["country"].encode()).decode()}
    return e


answers["rest classify"] = rest("classify", {"signature_name": "like", "examples": [shown(r) for r in rows]})
answers["rest regress"] = rest("regress", {"signature_name": "length", "examples": [shown(r) for r in rows]}, zipped=True)
answers["rest context"] = rest("regress", {
    "signature_name": "length", "examples": [shown(r, of_row) for r in rows], "context": shown(rows[0]),
})
print(json.dumps(answers))
