"""Reads cases as JSON, lets TensorFlow's own kernels apply each case's gradients, and
writes the weights after every step."""
import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import numpy as np
import tensorflow as tf

raw = tf.raw_ops


def trajectory(case):
    op, p = case["op"], case["params"]
    w = tf.Variable(np.array(case["weights"], np.float32))

    def slot(value):
        return tf.Variable(np.full(w.shape, value, np.float32)).handle

    def scalar(value):
        return tf.Variable(np.float32(value))

    a, b, c = slot(p.get("accum", 0.0)), slot(0.0), slot(0.0)
    b1, b2 = scalar(p.get("beta1", 0.0)), scalar(p.get("beta2", 0.0))
    keep = [a, b, c]
    out = []
    for g, lr in zip(case["gradients"], case["rates"]):
        g, lr = tf.constant(g, tf.float32), tf.constant(lr, tf.float32)
        if op == "sgd":
            raw.ResourceApplyGradientDescent(var=w.handle, alpha=lr, delta=g)
        elif op == "adagrad":
            raw.ResourceApplyAdagrad(var=w.handle, accum=a, lr=lr, grad=g)
        elif op == "adadelta":
            raw.ResourceApplyAdadelta(var=w.handle, accum=a, accum_update=b, lr=lr, rho=p["rho"], epsilon=p["epsilon"], grad=g)
        elif op in ("adam", "amsgrad"):
            args = dict(var=w.handle, m=a, v=b, beta1_power=b1, beta2_power=b2, lr=lr,
                        beta1=p["beta1"], beta2=p["beta2"], epsilon=p["epsilon"], grad=g)
            if op == "adam":
                raw.ResourceApplyAdam(use_nesterov=p["nesterov"], **args)
            else:
                raw.ResourceApplyAdamWithAmsgrad(vhat=c, **args)
            b1.assign(b1 * np.float32(p["beta1"]))
            b2.assign(b2 * np.float32(p["beta2"]))
        elif op == "ftrl":
            # Their l2 counts twice, and has no beta of its own.
            l2 = (np.float64(p["l2"]) + np.float64(p["beta"]) / np.float64(lr.numpy())) / 2
            raw.ResourceApplyFtrl(var=w.handle, accum=a, linear=b, grad=g, lr=lr, l1=p["l1"], l2=np.float32(l2), lr_power=-0.5)
        elif op == "momentum":
            raw.ResourceApplyMomentum(var=w.handle, accum=a, lr=lr, grad=g, momentum=p["momentum"], use_nesterov=p["nesterov"])
        elif op == "rmsprop":
            # Their step is another; the mean of the squares is compared.
            raw.ResourceApplyRMSProp(var=w.handle, ms=a, mom=b, lr=lr, rho=p["rho"], momentum=0.0, epsilon=1.0, grad=g)
            out.append((raw.ReadVariableOp(resource=a, dtype=tf.float32).numpy() / p["share"]).tolist())
            continue
        else:
            raise ValueError(op)
        out.append(w.numpy().tolist())
    del keep
    return out


def rows(case):
    """Like trajectory, on some rows of a matrix in each step; gradients of equal rows are
    summed first."""
    op, p = case["op"], case["params"]
    w = tf.Variable(np.array(case["weights"], np.float32))
    a = tf.Variable(np.full(w.shape, p.get("accum", 0.0), np.float32))
    b = tf.Variable(np.zeros(w.shape, np.float32))
    out = []
    for step in case["steps"]:
        ids, at = np.unique(np.array(step["ids"], np.int64), return_inverse=True)
        g = tf.math.unsorted_segment_sum(tf.constant(step["gradients"], tf.float32), tf.constant(at.reshape(-1)), len(ids))
        lr = tf.constant(step["rate"], tf.float32)
        args = dict(var=w.handle, accum=a.handle, lr=lr, grad=g, indices=tf.constant(ids))
        if op == "sgd":
            raw.ResourceScatterSub(resource=w.handle, indices=ids, updates=lr * g)
        elif op == "adagrad":
            raw.ResourceSparseApplyAdagrad(**args)
        elif op == "adadelta":
            raw.ResourceSparseApplyAdadelta(accum_update=b.handle, rho=p["rho"], epsilon=p["epsilon"], **args)
        elif op == "ftrl":
            l2 = (np.float64(p["l2"]) + np.float64(p["beta"]) / np.float64(lr.numpy())) / 2
            raw.ResourceSparseApplyFtrl(linear=b.handle, l1=p["l1"], l2=np.float32(l2), lr_power=-0.5, **args)
        elif op == "momentum":
            raw.ResourceSparseApplyMomentum(momentum=p["momentum"], use_nesterov=p["nesterov"], **args)
        else:
            raise ValueError(op)
        out.append(w.numpy().tolist())
    return out


def decay(case):
    f = tf.compat.v1.train.polynomial_decay
    out = []
    for step in case["steps"]:
        lr = f(np.float32(case["initial"]), tf.constant(step, tf.int64), case["decay_steps"], np.float32(case["end"]), np.float32(case["power"]), case["cycle"])
        out.append(float(lr() if callable(lr) else lr))
    return out


want = json.load(sys.stdin)
json.dump({
    "trajectories": [trajectory(c) for c in want.get("cases") or []],
    "rows": [rows(c) for c in want.get("tables") or []],
    "decays": [decay(c) for c in want.get("decays") or []],
}, sys.stdout)
