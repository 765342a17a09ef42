"""Writes warm-up requests with TensorFlow's own writer: tf_warmup.py <file> <model>."""

import sys

import tensorflow as tf
from tensorflow_serving.apis import (
    classification_pb2,
    inference_pb2,
    predict_pb2,
    prediction_log_pb2,
    regression_pb2,
)

path, model = sys.argv[1:]


def fill(request):
    request.model_spec.name = model
    examples(request)
    return request


def examples(request):
    e = request.input.example_list.examples.add()
    e.features.feature["userId"].int64_list.value.append(1)
    e.features.feature["movieId"].int64_list.value.append(2)


predict = predict_pb2.PredictRequest()
predict.model_spec.name = model
predict.inputs["user"].CopyFrom(tf.make_tensor_proto([1, 2], dtype=tf.int64))
predict.inputs["movie"].CopyFrom(tf.make_tensor_proto([3, 4], dtype=tf.int64))
classify = fill(classification_pb2.ClassificationRequest())
regress = fill(regression_pb2.RegressionRequest())
multi = inference_pb2.MultiInferenceRequest()
examples(multi)
for method in ("classify", "regress"):
    task = multi.tasks.add(method_name="tensorflow/serving/" + method)
    task.model_spec.name = model
log = prediction_log_pb2.PredictionLog
with tf.io.TFRecordWriter(path) as out:
    for record in (
        log(predict_log=prediction_log_pb2.PredictLog(request=predict)),
        log(classify_log=prediction_log_pb2.ClassifyLog(request=classify)),
        log(regress_log=prediction_log_pb2.RegressLog(request=regress)),
        log(multi_inference_log=prediction_log_pb2.MultiInferenceLog(request=multi)),
    ):
        out.write(record.SerializeToString())
