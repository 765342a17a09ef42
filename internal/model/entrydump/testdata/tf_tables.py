"""Reads tables as TensorFlow and protobuf see them, and writes one.

tf_tables.py <proto folder> <set of one table> <set of several> <set to write>

The folder holds the code that protoc made of the original's messages. Prints what the
sets hold as JSON; the set to write is one of several tables in two shards.
"""

import glob
import importlib
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf  # noqa: E402

protos, single, multi, target = sys.argv[1:]
sys.path.insert(0, protos)
pb = importlib.import_module("internal.model.monolithpb.hash_table_pb2")


def row(record):
    d = pb.EntryDump.FromString(record)
    slots = []
    for o in d.opt.dump:
        kind = o.WhichOneof("type")
        fields = {f.name: v for f, v in getattr(o, kind).ListFields()}
        slots.append(
            {
                "kind": kind,
                "planes": {k: [v] if isinstance(v, (int, float)) else list(v) for k, v in fields.items()},
            }
        )
    return {"id": d.id, "num": list(d.num), "ts": d.last_update_ts_sec, "opt": slots}


def records(path, compression=""):
    return [r.numpy() for r in tf.data.TFRecordDataset(path, compression_type=compression)]


out = {"single": [], "multi": {}}
for path in sorted(glob.glob(single + "-*-of-*")):
    out["single"] += [row(r) for r in records(path)]
for path in sorted(glob.glob(multi + "-*-of-*")):
    found = records(path, "SNAPPY")
    for r in records(path.replace(multi + "-", multi + ".meta-")):
        m = pb.MultiHashTableMetadata.FromString(r)
        out["multi"].setdefault(m.table_name, [])
        out["multi"][m.table_name] += [row(r) for r in found[: m.num_entries]]
        found = found[m.num_entries :]
    assert not found, "more records than the meta file tells of"


def write(path, compression, data):
    w = tf.data.experimental.TFRecordWriter(path, compression_type=compression)
    w.write(tf.data.Dataset.from_tensor_slices(data))


for shard in range(2):
    data, meta = [], []
    for name, dim, n in (("big", 40000, 2), ("small", 2, 3)):
        for i in range(n):
            d = pb.EntryDump(id=100 * shard + i, num=[i + j / 4 for j in range(dim)], last_update_ts_sec=1700000000 + i)
            d.opt.dump.add().adagrad.norm.extend([shard + j / 8 for j in range(dim)])
            data.append(d.SerializeToString())
        meta.append(pb.MultiHashTableMetadata(table_name=name, num_entries=n).SerializeToString())
    write(f"{target}-{shard:05d}-of-00002", "SNAPPY", data)
    write(f"{target}.meta-{shard:05d}-of-00002", "", meta)
print(json.dumps(out))
