"""Rows of a file in memory, looked up by their numbers: a model of Triton's Python backend."""

import json
import os

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    def initialize(self, args):
        dim = json.loads(args["model_config"])["output"][0]["dims"][1]
        path = os.path.join(args["model_repository"], args["model_version"], "rows")
        self.rows = np.fromfile(path, dtype=np.float32).reshape(-1, int(dim))

    def execute(self, requests):
        answers = []
        for request in requests:
            ids = triton.get_input_tensor_by_name(request, "ids").as_numpy()
            answers.append(triton.InferenceResponse([triton.Tensor("rows", self.rows[ids])]))
        return answers
