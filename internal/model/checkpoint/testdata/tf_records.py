"""Reads and writes what ckpt does, with TensorFlow and protobuf: tf_records.py <proto folder> <table file> <file to write>.

The folder holds the code that protoc made of the original's EntryDump. Prints the
table's records as JSON, and writes rows and odd records to the other file.
"""

import importlib
import json
import sys

import tensorflow as tf

protos, source, target = sys.argv[1:]
sys.path.insert(0, protos)
hash_table_pb2 = importlib.import_module("internal.model.monolithpb.hash_table_pb2")

records = [r.numpy() for r in tf.data.TFRecordDataset(source)]
again = list(tf.compat.v1.io.tf_record_iterator(source))
assert records == again, "TensorFlow's two readers differ"
rows = []
for r in records:
    d = hash_table_pb2.EntryDump.FromString(r)
    rows.append(
        {
            "raw": r.hex(),
            "id": d.id,
            "num": list(d.num),
            "norm": [list(o.adagrad.norm) for o in d.opt.dump],
            "kind": [o.WhichOneof("type") for o in d.opt.dump],
            "ts": d.last_update_ts_sec,
        }
    )

with tf.io.TFRecordWriter(target) as w:
    w.write(b"")
    w.write(bytes(range(256)) * 5000)
    for i, values in ((-9, [0.5, -1.5]), (1 << 48 | 5, [3.0, 1e-30])):
        d = hash_table_pb2.EntryDump(id=i, num=values, last_update_ts_sec=1700000000)
        d.opt.dump.add().adagrad.norm.extend([0.1, 0.25])
        w.write(d.SerializeToString())
print(json.dumps(rows))
