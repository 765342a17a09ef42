"""Asks a model of lists and floats with TensorFlow's own ragged tensors: tf_lists.py <grpc> <model> <rows>.

rows is a list of [user, history, movie, country, age, vec] as JSON. Prints the answers as JSON.
"""

import json
import sys

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc

addr, model, rows = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
users, histories, movies, countries, ages, vecs = (list(c) for c in zip(*rows))
prediction = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(addr))


def ask(inputs):
    q = predict_pb2.PredictRequest()
    q.model_spec.name = model
    for key, value in inputs.items():
        q.inputs[key].CopyFrom(tf.make_tensor_proto(value))
    r = prediction.Predict(q, timeout=120)
    return {k: tf.make_ndarray(v).tolist() for k, v in r.outputs.items()}


def example(user, history, movie, country, age, vec):
    ints = lambda v: tf.train.Feature(int64_list=tf.train.Int64List(value=v))
    floats = lambda v: tf.train.Feature(float_list=tf.train.FloatList(value=v))
    return tf.train.Example(features=tf.train.Features(feature={
        "user": ints([user]), "history": ints(history), "movie": ints([movie]), "age": floats([age]), "vec": floats(vec),
        "country": tf.train.Feature(bytes_list=tf.train.BytesList(value=[country.encode()])),
    })).SerializeToString()


history = tf.ragged.constant(histories, dtype=tf.int64)
answers = {
    "ragged": ask({
        "user": np.array(users, np.int64), "history": history.values.numpy(), "history/row_splits": history.row_splits.numpy(),
        "movie": np.array(movies, np.int64), "country": np.array([c.encode() for c in countries]),
        "age": np.array(ages, np.float32), "vec": np.array(vecs, np.float32),
    }),
    "examples": ask({"examples": np.array([example(*row) for row in rows])}),
}
q = get_model_metadata_pb2.GetModelMetadataRequest(metadata_field=["signature_def"])
q.model_spec.name = model
defs = get_model_metadata_pb2.SignatureDefMap()
assert prediction.GetModelMetadata(q, timeout=120).metadata["signature_def"].Unpack(defs)
signature = defs.signature_def["serving_default"]
answers["signature"] = [{k: tf.dtypes.as_dtype(v.dtype).name for k, v in ports.items()} for ports in (signature.inputs, signature.outputs)]
print(json.dumps(answers))
