"""Reads a model_dir as TensorFlow and Monolith do, and writes another one.

tf_model_dir.py <model_dir to read> <model_dir to write>

Prints what it read as JSON. The other one is written by TensorFlow's own Saver, of a graph with a
dense layer that an Adagrad has updated, with tables of several servers beside it.
"""

import glob
import json
import os
import struct
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf  # noqa: E402

ours, theirs = sys.argv[1:]
tf1 = tf.compat.v1


def varint(b, at):
    v = shift = 0
    while True:
        v, shift, at = v | (b[at] & 127) << shift, shift + 7, at + 1
        if b[at - 1] < 128:
            return v, at


def fields(b):
    at, out = 0, []
    while at < len(b):
        tag, at = varint(b, at)
        kind = tag & 7
        if kind == 0:
            v, at = varint(b, at)
        elif kind == 1:
            v, at = struct.unpack_from("<q", b, at)[0], at + 8
        elif kind == 2:
            n, at = varint(b, at)
            v, at = b[at : at + n], at + n
        else:
            v, at = struct.unpack_from("<f", b, at)[0], at + 4
        out.append((tag >> 3, v))
    return out


def row(b):
    f = fields(b)
    return {"id": [v for k, v in f if k == 1][0], "num": [v for k, v in f if k == 2], "ts": [v for k, v in f if k == 4]}


def records(path, packed):
    return [r.numpy() for r in tf.data.TFRecordDataset(path, compression_type="SNAPPY" if packed else "")]


latest = tf.train.latest_checkpoint(ours)
reader = tf.train.load_checkpoint(latest)
out = {
    "latest": latest,
    "all": list(tf.train.get_checkpoint_state(ours).all_model_checkpoint_paths),
    "variables": {n: reader.get_tensor(n).reshape(-1).tolist() for n in reader.get_variable_to_shape_map()},
    "tables": {},
}
for path in sorted(glob.glob(latest + ".assets/MonolithMultiHashTable_?-*")):
    found = [row(r) for r in records(path, True)]
    base, shard, _, shards = path.rsplit("-", 3)
    for r in records(f"{base}.meta-{shard}-of-{shards}", False):
        meta = dict(fields(r))
        out["tables"].setdefault(meta[1].decode(), []).extend(found[: meta[2]])
        found = found[meta[2] :]
    assert not found, "more records than the meta file tells of"


def tagged(field, kind, data):
    return bytes([field << 3 | kind]) + data


def entry(id, num, norm):
    adagrad = b"".join(tagged(1, 5, struct.pack("<f", x)) for x in norm)
    single = tagged(1, 2, bytes([len(adagrad)]) + adagrad)
    opt = tagged(1, 2, bytes([len(single)]) + single)
    b = tagged(1, 1, struct.pack("<q", id)) + b"".join(tagged(2, 5, struct.pack("<f", x)) for x in num)
    return b + tagged(3, 2, bytes([len(opt)]) + opt)


def write(path, packed, data):
    tf.data.experimental.TFRecordWriter(path, compression_type="SNAPPY" if packed else "").write(
        tf.data.Dataset.from_tensor_slices(data)
    )


with tf.Graph().as_default(), tf1.Session() as sess:
    step = tf1.train.get_or_create_global_step()
    w = tf1.get_variable("mlp/dense_0/kernel", initializer=[[1.0, 2.0], [3.0, 4.0]])
    b = tf1.get_variable("mlp/dense_0/bias", initializer=[0.5, -0.5])
    loss = tf.reduce_sum(tf.matmul([[1.0, 1.0]], w) + b)
    train = tf1.train.AdagradOptimizer(0.1, initial_accumulator_value=0.25).minimize(loss, global_step=step)
    sess.run(tf1.global_variables_initializer())
    for _ in range(3):
        sess.run(train)
    saver = tf1.train.Saver()
    prefix = saver.save(sess, os.path.join(theirs, "model.ckpt"), global_step=step)
    out["trained"] = {v.name.split(":")[0]: sess.run(v).reshape(-1).tolist() for v in tf1.global_variables()}

assets = prefix + ".assets"
os.makedirs(assets)
for ps in range(3):
    data, meta = [], []
    for name, slot, n in (("movie_id", 2, 4), ("unused", 9, 1)):
        for i in range(n):
            id = slot << 48 | (3 * i + ps - (slot << 48) % 3) % 3000
            data.append(entry(id, [i + ps / 4, -i], [1.0 + i, 2.0]))
        meta.append(tagged(1, 2, bytes([len(name)]) + name.encode()) + tagged(2, 0, bytes([n])))
    write(f"{assets}/MonolithMultiHashTable_{ps}-00000-of-00001", True, data)
    write(f"{assets}/MonolithMultiHashTable_{ps}.meta-00000-of-00001", False, meta)
with open(os.path.join(theirs, "monolith_checkpoint"), "w") as f:
    f.write("builtin_hash_table_type: MULTI_CUCKOO_HASH_MAP\n")
print(json.dumps(out))
