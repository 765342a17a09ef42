"""Reads cases as JSON, lets PyTorch's optimizers apply each case's gradients in float64,
and writes the weights after every step."""
import json
import math
import sys

import torch


def trajectory(case):
    op, p = case["op"], case["params"]
    w = torch.nn.Parameter(torch.tensor(case["weights"], dtype=torch.float64))
    decay = p.get("decay", 0.0)
    if op == "sgd":
        o = torch.optim.SGD([w], lr=1.0)
    elif op == "momentum":
        o = torch.optim.SGD([w], lr=1.0, momentum=p["momentum"], nesterov=p["nesterov"], weight_decay=decay)
    elif op == "adagrad":
        o = torch.optim.Adagrad([w], lr=1.0, initial_accumulator_value=p["accum"], eps=0.0, weight_decay=decay)
    elif op == "adadelta":
        o = torch.optim.Adadelta([w], lr=1.0, rho=p["rho"], eps=p["epsilon"], weight_decay=decay)
    elif op in ("adam", "amsgrad"):
        o = torch.optim.Adam([w], lr=1.0, betas=(p["beta1"], p["beta2"]), amsgrad=op == "amsgrad", weight_decay=decay)
    elif op in ("rmsprop", "rmspropv2"):
        # rmspropv2 sums the squares where they take the mean: the same rule, scaled.
        scale = math.sqrt(1 - p["momentum"]) if op == "rmspropv2" else 1.0
        o = torch.optim.RMSprop([w], lr=1.0, alpha=p["momentum"], eps=scale, weight_decay=decay)
    else:
        raise ValueError(op)
    out = []
    for step, (g, lr) in enumerate(zip(case["gradients"], case["rates"]), 1):
        group = o.param_groups[0]
        group["lr"] = lr * scale if op == "rmspropv2" else lr
        if op in ("adam", "amsgrad"):
            # Theirs is added to the root of the corrected mean.
            group["eps"] = p["epsilon"] / math.sqrt(1 - p["beta2"] ** step)
        w.grad = torch.tensor(g, dtype=torch.float64)
        o.step()
        out.append(w.tolist())
    return out


want = json.load(sys.stdin)
json.dump({"trajectories": [trajectory(c) for c in want["cases"]]}, sys.stdout)
