"""Reads models as JSON, each a ModelSpec with rows, first values and labels, computes them with
TensorFlow or PyTorch (the first argument) in float32, and writes logits, losses and gradients.

The layers are written from what introduced them, not from this project's code:

FM         Rendle, Factorization Machines, ICDM 2010
FFM        Juan et al., Field-aware Factorization Machines for CTR Prediction, RecSys 2016
DeepFM     Guo et al., arXiv:1703.04247
DCN-v2     Wang et al., arXiv:2008.13535
attention  Zhou et al., Deep Interest Network, arXiv:1706.06978, and its code's [q, k, q - k, q * k]
GRU        Cho et al., arXiv:1406.1078
AUGRU      Zhou et al., Deep Interest Evolution Network, arXiv:1809.03672, as the authors' code has it
MMoE       Ma et al., Modeling Task Relationships in Multi-task Learning, KDD 2018
PLE        Tang et al., Progressive Layered Extraction, RecSys 2020
in-batch   Yi et al., Sampling-Bias-Corrected Neural Modeling, RecSys 2019
"""
import json
import math
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

if sys.argv[1] == "torch":
    import torch as lib

    lib.set_num_threads(1)
    variable = lambda x: lib.tensor(x, dtype=lib.float32, requires_grad=True)
    constant = lambda x: lib.tensor(x, dtype=lib.float32)
    concat = lambda all, axis: lib.cat(list(all), dim=axis)
    total = lambda x, axis: lib.sum(x, dim=axis)
    mean = lambda x: lib.mean(x)
    softplus = lib.nn.functional.softplus
    erf = lib.erf
    maximum = lambda x, c: lib.clamp(x, min=c)
    softmax = lambda x: lib.softmax(x, dim=-1)
    root, log = lib.sqrt, lib.log
    still = lambda x: x.detach()
else:
    import tensorflow as lib

    variable = lambda x: lib.Variable(x, dtype=lib.float32)
    constant = lambda x: lib.constant(x, dtype=lib.float32)
    concat = lambda all, axis: lib.concat(list(all), axis=axis)
    total = lambda x, axis: lib.reduce_sum(x, axis=axis)
    mean = lambda x: lib.reduce_mean(x)
    softplus = lib.math.softplus
    erf = lib.math.erf
    maximum = lambda x, c: lib.maximum(x, c)
    softmax = lambda x: lib.nn.softmax(x, axis=-1)
    root, log = lib.sqrt, lib.math.log
    still = lib.stop_gradient

sigmoid, tanh, where, stack = lib.sigmoid, lib.tanh, lib.where, lib.stack
reshape = lambda x, *dims: lib.reshape(x, dims)


def flat(x):
    return reshape(x, x.shape[0], -1)


def activate(kind, x, alpha=None):
    if kind == "LINEAR":
        return x
    if kind == "RELU":
        return where(x > 0, x, 0 * x)
    if kind == "SIGMOID":
        return sigmoid(x)
    if kind == "TANH":
        return tanh(x)
    if kind == "SILU":
        return x * sigmoid(x)
    if kind == "GELU":
        return x * (1 + erf(x / math.sqrt(2))) / 2
    if kind == "LEAKY_RELU":
        return where(x > 0, x, 0.01 * x)
    if kind == "PRELU":
        return where(x > 0, x, alpha * x)
    raise ValueError(kind)


class Model:
    def __init__(self, case):
        self.spec, self.values, self.logits, self.towers = case["spec"], {}, {}, {}
        self.lengths = {}  # of values by id: [n]
        self.rows, self.kept = [], []
        self.once, self.each = 0.0, 0.0  # what layers add to the loss, in all and of the mean sample
        for o in case["outputs"]:
            tensors = [variable(t) for t in o["tensors"]]
            self.rows += tensors
            self.values[o["name"]] = tensors
            if o.get("lengths"):
                for t in tensors:
                    self.tell(t, constant(o["lengths"]))
        for name, x in (case.get("floats") or {}).items():
            self.values[name] = [constant(x)]
        self.vars = {name: variable(v) for name, v in case["variables"]}
        self.layers = {l["name"]: (i, l) for i, l in enumerate(self.spec["layers"])}

    def tell(self, x, lengths):
        self.kept.append(x)  # so that no other has its id
        self.lengths[id(x)] = lengths

    def within(self, x):
        """1 for each step of x that counts, [n t]."""
        t = constant([list(range(x.shape[1]))])
        if id(x) not in self.lengths:
            return 0 * t + 1 + 0 * x[:, :, 0]
        return where(t < reshape(self.lengths[id(x)], -1, 1), 0 * x[:, :, 0] + 1, 0 * x[:, :, 0])

    def find(self, word):
        if word in self.layers and word not in self.logits:
            self.make(*self.layers[word])
        if word in self.values:
            return self.values[word][0]
        name, nth = word.rsplit(".", 1)
        if name in self.layers and name not in self.logits:
            self.make(*self.layers[name])
        return self.values[name][int(nth)]

    def make(self, i, l):
        words = l.get("inputs") or [self.spec["layers"][i - 1]["name"] if i else next(iter(self.values))]
        x = [self.find(w) for w in words]
        kind = next((k for k in KINDS if k in l), "dense")
        made = KINDS[kind](self, l["name"], l.get(kind, l), x)
        if not isinstance(made, list):
            made = [made]
        self.logits[l["name"]] = made[0]
        several = len(made) > 1 and kind in ("mmoe", "ple")
        for k in range(len(made) if several else 1):
            alpha = self.vars.get(f"{l['name']}/{f'{k}/' if several else ''}alpha")
            y = activate(l.get("activation", "LINEAR"), made[k], alpha)
            if id(x[0]) in self.lengths and len(y.shape) == 3 and y.shape[1] == x[0].shape[1]:
                self.tell(y, self.lengths[id(x[0])])
            made[k] = y
        self.regularize(l, [*made] if several else made[:1])
        self.values[l["name"]] = made

    def regularize(self, l, made):
        def penalty(r, x):
            return r.get("l1", 0.0) * total(where(x > 0, x, -x), None) + r.get("l2", 0.0) * total(x * x, None)

        own = {v: x for v, x in self.vars.items() if v.startswith(l["name"] + "/")}
        for name, x in own.items():
            if "kernel_regularizer" in l and len(x.shape) > 1:
                self.once = self.once + penalty(l["kernel_regularizer"], x)
            if "bias_regularizer" in l and name.endswith("/bias"):
                self.once = self.once + penalty(l["bias_regularizer"], x)
        for y in made if "activity_regularizer" in l else []:
            self.each = self.each + penalty(l["activity_regularizer"], y) / y.shape[0]

    def dense(self, name, l, x):
        x = concat([flat(y) for y in x], 1)
        return x @ self.vars[f"{name}/kernel"] + self.vars[f"{name}/bias"]

    def mlp(self, name, l, x):
        y = concat([flat(z) for z in x], 1)
        for i in range(len(l["units"])):
            if i:
                y = activate(l.get("activation", "RELU"), y, self.vars.get(f"{name}/{i - 1}/alpha"))
            y = y @ self.vars[f"{name}/{i}/kernel"] + self.vars[f"{name}/{i}/bias"]
        return y

    def add(self, name, l, x):
        y = sum(x[1:], x[0])
        return y + self.vars[f"{name}/bias"] if l.get("bias") else y

    def mul(self, name, l, x):
        y = x[0]
        for z in x[1:]:
            y = y * z
        return y

    def dot(self, name, l, x):
        a, b = flat(x[0]), flat(x[1])
        self.towers[name] = (a, b)
        return reshape(total(a * b, 1), -1, 1)

    def fm(self, name, l, x):
        rows = [x[0][:, i] for i in range(x[0].shape[1])]
        pairs = [total(a * b, 1) for i, a in enumerate(rows) for b in rows[:i]]
        return reshape(sum(pairs), -1, 1)

    def ffm(self, name, l, x):
        f = x[0].shape[1]
        v = reshape(x[0], x[0].shape[0], f, f, -1)
        pairs = [total(v[:, i, j] * v[:, j, i], 1) for i in range(f) for j in range(i)]
        return reshape(sum(pairs), -1, 1)

    def cross(self, name, l, x):
        x0 = concat([flat(y) for y in x], 1)
        y = x0
        for i in range(l["depth"]):
            if l.get("rank"):
                w = (y @ self.vars[f"{name}/{i}/u"]) @ self.vars[f"{name}/{i}/v"]
            else:
                w = y @ self.vars[f"{name}/{i}/kernel"]
            y = x0 * (w + self.vars[f"{name}/{i}/bias"]) + y
        return y

    def norm(self, name, l, x):
        x = x[0]
        column = [*x.shape[:-1], 1]
        if l.get("type") == "L2":
            return x / reshape(root(maximum(total(x * x, -1), 1e-12)), *column)
        d = x - reshape(total(x, -1) / x.shape[-1], *column)
        deviation = reshape(root(total(d * d, -1) / x.shape[-1] + 1e-5), *column)
        return d / deviation * self.vars[f"{name}/gain"] + self.vars[f"{name}/shift"]

    def activation(self, name, l, x):
        return x[0]

    def pool(self, name, l, x):
        x = x[0]
        counts = self.within(x)
        y = total(x * reshape(counts, *counts.shape, 1), 1)
        if l.get("type") == "MEAN":
            return y / maximum(reshape(total(counts, 1), -1, 1), 1.0)
        return y

    def attention(self, name, l, x):
        k, counts = x[1], self.within(x[1])
        n, t, d = k.shape
        q = reshape(flat(x[0]), n, 1, d) + 0 * k
        a, b, c = (self.vars[f"{name}/0/{w}"] for w in ("query", "key", "product"))
        any = constant([[math.sin(i * a.shape[1] + j) for j in range(a.shape[1])] for i in range(d)])
        w = concat([a - any, b + any, any, c], 0)  # q + k and q - k say the same, however they are mixed
        y = concat([q, k, q - k, q * k], 2) @ w + self.vars[f"{name}/0/bias"]
        for i in range(len(l.get("units", []))):
            y = activate(l.get("activation", "SIGMOID"), y, self.vars.get(f"{name}/{i}/alpha"))
            y = y @ self.vars[f"{name}/{i + 1}/kernel"] + self.vars[f"{name}/{i + 1}/bias"]
        y = reshape(y, n, t)
        if l.get("raw"):
            weights = y * counts
        else:
            weights = softmax(where(counts > 0, y, 0 * y - 1e30)) * counts
        return [total(k * reshape(weights, n, t, 1), 1), weights]

    def gru(self, name, l, x, scores=None):
        x, counts = x[0], self.within(x[0])
        h, states = None, []
        g, c = ({w: self.vars[f"{name}/{part}/{w}"] for w in ("kernel", "bias", "recurrent")} for part in ("gates", "candidate"))
        size = c["bias"].shape[0]
        h = 0 * (x[:, 0] @ c["kernel"])
        for t in range(x.shape[1]):
            gates = sigmoid(x[:, t] @ g["kernel"] + g["bias"] + h @ g["recurrent"])
            r, u = gates[:, :size], gates[:, size:]
            candidate = tanh(x[:, t] @ c["kernel"] + c["bias"] + (r * h) @ c["recurrent"])
            if scores is not None:
                u = (1 - reshape(scores[:, t], -1, 1)) * u
            new = u * h + (1 - u) * candidate
            h = where(reshape(counts[:, t], -1, 1) > 0, new, h)
            states.append(h)
        all = stack(states, 1)
        if id(x) in self.lengths:
            self.tell(all, self.lengths[id(x)])
        return [h, all]

    def augru(self, name, l, x):
        return self.gru(name, l, x[:1], reshape(x[1], x[1].shape[0], -1))

    def experts(self, prefix, count, units, x):
        out = []
        for e in range(count):
            y = x
            for i in range(len(units)):
                y = activate("RELU", y @ self.vars[f"{prefix}expert_{e}/{i}/kernel"] + self.vars[f"{prefix}expert_{e}/{i}/bias"])
            out.append(y)
        return out

    def gated(self, name, x, experts):
        gate = softmax(x @ self.vars[name])
        return sum(gate[:, i : i + 1] * e for i, e in enumerate(experts))

    def mmoe(self, name, l, x):
        x = concat([flat(y) for y in x], 1)
        experts = self.experts(f"{name}/", l["experts"], l["units"], x)
        return [self.gated(f"{name}/gate_{t}", x, experts) for t in range(l["tasks"])]

    def ple(self, name, l, x):
        shared = concat([flat(y) for y in x], 1)
        tasks = [shared] * l["tasks"]
        for level in range(l["levels"]):
            common = self.experts(f"{name}/{level}/shared/", l["shared"], l["units"], shared)
            own = [self.experts(f"{name}/{level}/task_{t}/", l["experts"], l["units"], y) for t, y in enumerate(tasks)]
            tasks = [self.gated(f"{name}/{level}/task_{t}/gate", y, own[t] + common) for t, y in enumerate(tasks)]
            if level < l["levels"] - 1:
                shared = self.gated(f"{name}/{level}/shared/gate", shared, sum(own, []) + common)
        return tasks

    def learn(self, labels):
        """The logits of all tasks, and the loss of the batch."""
        for i, l in enumerate(self.spec["layers"]):
            self.find(l["name"])
        logits, loss = [], 0.0
        for task, label in zip(self.spec["tasks"], labels):
            kind = task.get("loss", "CROSS_ENTROPY")
            y = self.logits[task["logit"]]
            logits.append(y)
            label = constant(label)
            if kind == "CROSS_ENTROPY":
                one = mean(softplus(-y[:, 0]) * label + softplus(y[:, 0]) * (1 - label))
            elif kind == "MSE":
                one = mean((y[:, 0] - label) ** 2)
            elif kind == "IN_BATCH_SOFTMAX":
                a, b = self.towers[task["logit"]]
                all = total(reshape(a, a.shape[0], 1, -1) * reshape(b, 1, a.shape[0], -1), 2)
                if task.get("log_q"):
                    all = all + log(maximum(reshape(still(self.values[task["log_q"]][0]), 1, -1), 1.0))
                p = softmax(all)
                one = 0.0
                for i in range(a.shape[0]):
                    one = one - log(p[i, i]) / a.shape[0]
            else:
                raise ValueError(kind)
            loss = loss + one * task.get("weight", 1.0)
        loss = loss + self.each
        if self.spec.get("reduction", "SUM") == "SUM":
            loss = loss * labels_of(labels)
        return logits, loss + self.once


def labels_of(labels):
    return float(len(labels[0]))


KINDS = {
    "mlp": Model.mlp, "add": Model.add, "mul": Model.mul, "dot": Model.dot, "fm": Model.fm, "ffm": Model.ffm,
    "cross": Model.cross, "attention": Model.attention, "gru": Model.gru, "augru": Model.augru, "mmoe": Model.mmoe,
    "ple": Model.ple, "norm": Model.norm, "activate": Model.activation, "pool": Model.pool, "dense": Model.dense,
}


def answer(case):
    m = Model(case)
    by = m.rows + list(m.vars.values())
    if sys.argv[1] == "torch":
        logits, loss = m.learn(case["labels"])
        grads = lib.autograd.grad(loss, by, allow_unused=True)
    else:
        with lib.GradientTape() as tape:
            logits, loss = m.learn(case["labels"])
        grads = tape.gradient(loss, by)
    flatten = lambda x: [] if x is None else [float(v) for v in x.numpy().reshape(-1)]
    if sys.argv[1] == "torch":
        flatten = lambda x: [] if x is None else x.detach().reshape(-1).tolist()
    return {"logits": [flatten(y) for y in logits], "loss": float(loss), "gradients": [flatten(g) for g in grads]}


json.dump([answer(case) for case in json.load(sys.stdin)], sys.stdout)
