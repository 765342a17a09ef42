"""Peers in Python under the same work as ours.

    peer.py bag ROWS DIM        torch EmbeddingBag, sum of 32 random rows a bag
    peer.py table KEYS [DIM]    TensorFlow Recommenders Addons' hash table, dim 16: rows found, or summed by 32
    peer.py gemm M N K BF16     matrix product of torch, in bfloat16 where that is 1
    peer.py deepfm BATCH BF16 COMPILED
                                DeepFM, 26 features x 16, MLP 1024-256-32, Adagrad; dense part under
                                bfloat16 autocast, and compiled, where those are 1
    peer.py parse FIELDS BATCH  TensorFlow's parse_example, an id in each field and a label, on one thread

After "ready" each line "<what> N" on standard input is answered with the seconds that N
units took: rows, finds, pooled rows, products, or samples ("train", "score" and "parse").
"""

import os
import sys
import time

THREADS = int(os.environ.get("PEER_THREADS", "2"))


def serve(**work):
    """Answers one line after the other until standard input ends."""
    print("ready", flush=True)
    for line in sys.stdin:
        what, n = line.split()
        run = work[what]
        began = time.perf_counter()
        run(int(n))
        print(f"{time.perf_counter() - began:.9f}", flush=True)


def table(keys, dim=16):
    import numpy as np
    import tensorflow as tf
    import tensorflow_recommenders_addons as tfra

    tf.config.threading.set_inter_op_parallelism_threads(THREADS)
    tf.config.threading.set_intra_op_parallelism_threads(THREADS)
    step = 1 << 20
    t = tfra.dynamic_embedding.CuckooHashTable(
        tf.int64, tf.float32, tf.zeros([dim]), name="t", init_size=keys * 2, config=tfra.dynamic_embedding.CuckooHashTableConfig()
    )
    # An odd multiplier modulo 2^63 keeps ids apart and spreads them.
    spread = np.uint64(0x9E3779B97F4A7C15)

    def ids(x):
        with np.errstate(over="ignore"):
            return ((x.astype(np.uint64) * spread) >> np.uint64(1)).astype(np.int64)

    for at in range(0, keys, step):
        n = min(step, keys - at)
        t.insert(tf.constant(ids(np.arange(at, at + n))), tf.zeros([n, dim]))
    rng = np.random.default_rng(1)
    size = 1 << 14
    batches = [tf.constant(ids(rng.integers(0, keys, size))) for _ in range(64)]

    @tf.function(input_signature=[tf.TensorSpec([size], tf.int64)])
    def find(b):
        return t.lookup(b)

    def repeat(f):
        def run(n):
            for i in range(max(1, n // size)):
                out = f(batches[i % len(batches)])
            out.numpy()

        run(size * 8)
        return run

    serve(find=repeat(find))


def gemm(m, n, k, bf16):
    import torch

    torch.set_num_threads(THREADS)
    kind = torch.bfloat16 if bf16 else torch.float32
    a, b = torch.rand(m, k).to(kind), torch.rand(k, n).to(kind)
    c = torch.empty(m, n, dtype=kind)

    def run(times):
        for _ in range(times):
            torch.mm(a, b, out=c)

    run(3)
    serve(product=run)


def deepfm(batch, bf16, compiled):
    # What is compiled goes with the script, and no compiler outlives it.
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compiled")
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    import torch

    torch.set_num_threads(THREADS)
    torch.manual_seed(1)
    fields, dim, vocab = 26, 16, 1_000_000

    class DeepFM(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = torch.nn.Embedding(vocab, dim, sparse=True)
            layers, width = [], fields * dim
            for units in (1024, 256, 32):
                layers += [torch.nn.Linear(width, units), torch.nn.ReLU()]
                width = units
            self.mlp = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1))

        def head(self, e):
            s = e.sum(1)
            fm = 0.5 * (s * s - (e * e).sum(1)).sum(1, keepdim=True)
            return (fm + self.mlp(e.flatten(1))).squeeze(1)

        def forward(self, ids):
            # The sparse gradients of the embedding are nothing that torch compiles.
            with torch.autocast("cpu", torch.bfloat16, enabled=bool(bf16)):
                return self.head(self.rows(ids)).float()

    model = DeepFM()
    if compiled:
        model.head = torch.compile(model.head)
    loss = torch.nn.BCEWithLogitsLoss()
    sparse = torch.optim.Adagrad(model.rows.parameters(), lr=0.01)
    dense = torch.optim.Adagrad(model.mlp.parameters(), lr=0.01, foreach=True)
    batches = [(torch.randint(vocab, (batch, fields)), torch.randint(2, (batch,)).float()) for _ in range(16)]

    def train(n):
        for i in range(max(1, n // batch)):
            ids, y = batches[i % len(batches)]
            sparse.zero_grad()
            dense.zero_grad()
            loss(model(ids), y).backward()
            sparse.step()
            dense.step()

    def score(n):
        with torch.inference_mode():
            for i in range(max(1, n // batch)):
                torch.sigmoid(model(batches[i % len(batches)][0]))

    train(batch * 2)
    score(batch * 2)
    serve(train=train, score=score)


def parse(fields, batch):
    import random

    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    rng = random.Random(1)

    def record():
        feature = {"__LABEL__.0": tf.train.Feature(float_list=tf.train.FloatList(value=[rng.randrange(2)]))}
        for slot in range(1, fields + 1):
            ids = tf.train.Int64List(value=[slot << 48 | rng.randrange(1_000_000)])
            feature[f"fc_slot_{slot}"] = tf.train.Feature(int64_list=ids)
        return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()

    records = tf.constant([record() for _ in range(batch)])
    # Of fixed length: what parse_example reads fastest.
    wanted = {f"fc_slot_{slot}": tf.io.FixedLenFeature([], tf.int64) for slot in range(1, fields + 1)}
    wanted["__LABEL__.0"] = tf.io.FixedLenFeature([], tf.float32)

    @tf.function(input_signature=[tf.TensorSpec([batch], tf.string)])
    def step(r):
        return tf.io.parse_example(r, wanted)

    def run(n):
        for _ in range(max(1, n // batch)):
            out = step(records)
        out["__LABEL__.0"].numpy()

    run(batch * 2)
    serve(parse=run)


if __name__ == "__main__":
    peers = {"table": table, "gemm": gemm, "deepfm": deepfm, "parse": parse}
    if len(sys.argv) < 3 or sys.argv[1] not in peers:
        sys.exit(__doc__)
    peers[sys.argv[1]](*map(int, sys.argv[2:]))
