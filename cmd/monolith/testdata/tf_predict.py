"""Asks a model server by tensorflow-serving-api: tf_predict.py <grpc> <model> <users> <movies>.

users and movies are lists of ids as JSON. Prints the version that answered and its scores as JSON.
"""

import json
import sys

import grpc
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

address, model, users, movies = sys.argv[1:]
request = predict_pb2.PredictRequest()
request.model_spec.name = model
for name, ids in (("user", users), ("movie", movies)):
    request.inputs[name].CopyFrom(tf.make_tensor_proto(json.loads(ids), dtype=tf.int64))
stub = prediction_service_pb2_grpc.PredictionServiceStub(grpc.insecure_channel(address))
answer = stub.Predict(request, timeout=60)
scores = tf.make_ndarray(next(iter(answer.outputs.values())))
print(json.dumps([answer.model_spec.version.value, scores.reshape(-1).tolist()]))
