"""DeepFM of two features in TensorFlow, learnt once in the given order from the given first values.

    deepfm.py FOLDER

FOLDER holds job.json and little-endian arrays: user.ids, movie.ids and labels by rating, and user.rows, movie.rows
and the dense variables with their first values. A row is a weight and a vector. Written back: losses and scores by
rating (of the step's batch, before it was applied). Printed: JSON, the seconds of the pass as a loop in Python over
a compiled step, and as a loop within one compiled function.
"""
import json, os, sys, time
import numpy as np
import tensorflow as tf

folder = sys.argv[1]
job = json.load(open(os.path.join(folder, "job.json")))
batch, start = job["batch"], job["initial_accumulator"]

def array(name, kind):
    return np.fromfile(os.path.join(folder, name), dtype=kind)

fields = ("user", "movie")
ids = tf.constant(np.stack([array(f + ".ids", "<i8") for f in fields], 1))
labels = tf.constant(array("labels", "<f4"))
steps = len(labels) // batch

def variable(value):
    return tf.Variable(value), tf.Variable(tf.fill(value.shape, start))

def model():
    tables = [variable(array(f + ".rows", "<f4").reshape(-1, job["dim"])) for f in fields]
    dense = [variable(array(v["file"], "<f4").reshape(v["shape"])) for v in job["variables"]]
    return tables, dense

def trainer(tables, dense):
    def step(x, y):
        places, found = [], []
        for k, (rows, _) in enumerate(tables):
            unique, at = tf.unique(x[:, k])  # so that a row's gradients are summed before it is updated
            places.append((unique, at))
            found.append(tf.gather(rows, unique))
        weights = [w.read_value() for w, _ in dense]
        with tf.GradientTape() as tape:
            tape.watch(found + weights)
            e = tf.stack([tf.gather(f, at) for f, (_, at) in zip(found, places)], 1)
            v = e[:, :, 1:]
            pairs = 0.5 * tf.reduce_sum(tf.square(tf.reduce_sum(v, 1)) - tf.reduce_sum(tf.square(v), 1), 1)
            h = tf.reshape(v, [-1, v.shape[1] * v.shape[2]])
            for i in range(0, len(weights), 2):
                h = tf.matmul(h, weights[i]) + weights[i + 1]
                if i + 2 < len(weights):
                    h = tf.nn.relu(h)
            logit = tf.reduce_sum(e[:, :, 0], 1) + pairs + h[:, 0]
            losses = tf.nn.sigmoid_cross_entropy_with_logits(y, logit)
            loss = tf.reduce_sum(losses)
        gradients = tape.gradient(loss, found + weights)
        for (rows, squares), (unique, _), g in zip(tables, places, gradients):
            tf.raw_ops.ResourceSparseApplyAdagrad(var=rows.handle, accum=squares.handle, lr=job["rows_rate"], grad=g, indices=unique)
        for (w, squares), g in zip(dense, gradients[len(found):]):
            tf.raw_ops.ResourceApplyAdagrad(var=w.handle, accum=squares.handle, lr=job["dense_rate"], grad=g)
        return losses, tf.sigmoid(logit)
    return step

def stepwise():
    tables, dense = model()
    step = tf.function(trainer(tables, dense)).get_concrete_function(
        tf.TensorSpec([batch, len(fields)], tf.int64), tf.TensorSpec([batch], tf.float32))
    batches = list(zip(tf.split(ids[: steps * batch], steps), tf.split(labels[: steps * batch], steps)))
    began = time.perf_counter()
    out = [step(x, y) for x, y in batches]
    seconds = time.perf_counter() - began
    for k, name in enumerate(("losses", "scores")):
        np.concatenate([o[k].numpy() for o in out]).astype("<f4").tofile(os.path.join(folder, name))
    return seconds

def whole():
    tables, dense = model()
    step = trainer(tables, dense)

    def run():
        sums = tf.TensorArray(tf.float32, steps)
        for i in tf.range(steps):
            losses, _ = step(tf.ensure_shape(ids[i * batch:(i + 1) * batch], [batch, len(fields)]), labels[i * batch:(i + 1) * batch])
            sums = sums.write(i, tf.reduce_sum(losses))
        return sums.stack()

    compiled = tf.function(run).get_concrete_function()
    began = time.perf_counter()
    compiled().numpy()
    return time.perf_counter() - began

print(json.dumps({"stepwise": stepwise(), "whole": whole(), "version": tf.__version__}))
