"""Run an exported policy on a robot at a fixed rate, with NumPy and onnxruntime alone."""

# ruff: noqa: ANN001, ANN201
# --8<-- [start:loop]
import json
import time

import numpy as np
import onnxruntime


def run(path, sense, actuate, steps, period=None):
    """Read the sensors, let the policy in `path` decide, move the motors; returns late steps."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    card = json.loads(session.get_modelmeta().custom_metadata_map["dressage"])["card"]
    period = period or card["control_period_s"]  # Seconds; a task without one has you say it.
    late, due = 0, time.perf_counter()
    for _ in range(steps):
        observation = np.asarray(sense(), np.float32)[None]
        (action,) = session.run(["action"], {"observation": observation})
        actuate(action[0])
        due += period
        wait = due - time.perf_counter()
        late += wait < 0
        time.sleep(max(0.0, wait))
    return late


# --8<-- [end:loop]
