"""Scores the samples in a JSON file by SavedModels, as TensorFlow 1's loader and TensorFlow 2's have them."""
import json, sys
import numpy as np
import tensorflow as tf

def tensors(inputs, signature):
    kinds = {name: tf.as_dtype(info.dtype).as_numpy_dtype for name, info in signature.inputs.items()}
    assert set(kinds) == set(inputs), (sorted(kinds), sorted(inputs))
    return {name: np.array(values, dtype=kinds[name]) for name, values in inputs.items()}

def session(folder, inputs):
    with tf.Graph().as_default(), tf.compat.v1.Session() as s:
        loaded = tf.compat.v1.saved_model.load(s, ["serve"], folder)
        signature = loaded.signature_def["serving_default"]
        given = {signature.inputs[name].name: v for name, v in tensors(inputs, signature).items()}
        return s.run({name: info.name for name, info in signature.outputs.items()}, given)

def eager(folder, inputs):
    f = tf.saved_model.load(folder).signatures["serving_default"]
    kinds = f.structured_input_signature[1]
    return {k: v.numpy() for k, v in f(**{name: tf.constant(values, dtype=kinds[name].dtype) for name, values in inputs.items()}).items()}

for line in open(sys.argv[1]):
    case = json.loads(line)
    out = {}
    for loader in (session, eager):
        out[loader.__name__] = {k: [float(x) for x in v] for k, v in loader(case["folder"], case["inputs"]).items()}
    print(json.dumps({"folder": case["folder"], "scores": out}), flush=True)
