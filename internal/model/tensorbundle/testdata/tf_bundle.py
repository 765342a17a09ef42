"""Reads a bundle by TensorFlow's own reader, and writes another one.

tf_bundle.py <bundle to read> <bundle to write>

Prints the tensors that were read as JSON. The one to write is merged of two, so that its
numbers lie in two files, and holds other types too.
"""

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

ours, theirs = sys.argv[1:]
reader = tf.train.load_checkpoint(ours)
out = {}
for name, shape in reader.get_variable_to_shape_map().items():
    v = reader.get_tensor(name)
    out[name] = {"type": str(v.dtype), "shape": shape, "numbers": v.reshape(-1).tolist()}

parts = [
    {"global_step": np.int64(2**40 + 7), "dense/kernel": np.arange(6, dtype=np.float32).reshape(2, 3) / 4},
    {"dense/bias": np.array([-1.5, 2.25], np.float32), "words": np.array([b"a", b"bc"]), "wide": np.array([1.0], np.float64)}
    | {f"layer_{i:05d}/kernel": np.full([3], i, np.float32) for i in range(6000)},
]
names = []
for i, part in enumerate(parts):
    names.append(f"{theirs}_part{i}")
    keys = list(part)
    tf.raw_ops.SaveV2(
        prefix=names[-1], tensor_names=keys, shape_and_slices=[""] * len(keys), tensors=[part[k] for k in keys]
    )
tf.raw_ops.MergeV2Checkpoints(checkpoint_prefixes=names, destination_prefix=theirs)
print(json.dumps(out))
