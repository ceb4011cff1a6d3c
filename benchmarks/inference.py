"""How long a policy takes for one observation: exported files beside hand-written ones, JAX and torch.

A network 24-64-64-6 with observation statistics and tanh into bounds. All ways take turns within a round, so
that a busy moment of the machine meets all of them; the figures are medians over all calls.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # Before NumPy: one small product is no work for two threads.

import gymnasium
import jax
import numpy as np
import onnx
import onnxruntime
from machine import conditions, save
from onnx import helper, numpy_helper

from dressage.export import NumpyPolicy, OnnxPolicy, export_policy
from dressage.learning.specs import agent_spec, observation_layout
from dressage.ppo import Config, NormalizeVec, Policy
from dressage.ppo.result import build_policy
from dressage.ppo.session import proximal_learner

OBSERVED, ACTED = 24, 6
CALLS = 200
Act = Callable[[], Any]


def make_policy() -> Policy:
    """Put a policy with drawn parameters together."""
    seen = gymnasium.spaces.Box(-np.inf, np.inf, (OBSERVED,))
    spec = agent_spec("agent", seen, gymnasium.spaces.Box(-0.5, 2.0, (ACTED,)))
    config = Config(NUM_HIDDEN_UNITS=64, NORMALIZE_ENV=True).validate()
    params = proximal_learner(spec, config).init(jax.random.key(0), 1).params["params"]
    statistics = (np.full(OBSERVED, value, np.float32) for value in (50, 400))
    scaling = NormalizeVec(*statistics, np.float32(1000))
    return build_policy(config, spec, observation_layout("agent", seen), params, scaling)


def weights_of(policy: Policy) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return kernel and bias of each layer of the actor."""
    layers = policy.model["actor"]
    return [tuple(np.asarray(layers[f"Dense_{i}"][part]) for part in ("kernel", "bias")) for i in range(3)]


def bare_numpy(policy: Policy) -> Callable[[np.ndarray], np.ndarray]:
    """Write the policy as one would by hand in NumPy."""
    (w0, b0), (w1, b1), (w2, b2) = weights_of(policy)
    mean, deviation = np.asarray(policy.obs_scaling.mean), np.sqrt(np.asarray(policy.obs_scaling.var) + 1e-8)
    half, middle = np.full(ACTED, 1.25, np.float32), np.full(ACTED, 0.75, np.float32)

    def act(observation: np.ndarray) -> np.ndarray:
        x = np.minimum(np.maximum((observation - mean) / deviation, -10.0), 10.0)
        x = np.tanh(x @ w0 + b0)
        x = np.tanh(x @ w1 + b1)
        return np.tanh(x @ w2 + b2) * half + middle

    return act


def bare_onnx(policy: Policy) -> onnxruntime.InferenceSession:
    """Write the policy as one would by hand in ONNX, with no name or word more than it needs."""
    layers = enumerate(weights_of(policy))
    arrays = {f"{kind}{i}": a for i, pair in layers for kind, a in zip("wb", pair, strict=True)}
    arrays |= {
        "mean": np.asarray(policy.obs_scaling.mean),
        "deviation": np.sqrt(np.asarray(policy.obs_scaling.var) + np.float32(1e-8)),
        "low": np.float32(-10),
        "high": np.float32(10),
        "half": np.full(ACTED, 1.25, np.float32),
        "middle": np.full(ACTED, 0.75, np.float32),
    }
    chain = [("Sub", ["x", "mean"]), ("Div", ["deviation"]), ("Clip", ["low", "high"])]
    for layer in range(3):
        chain += [("Gemm", [f"w{layer}", f"b{layer}"]), ("Tanh", [])]
    chain += [("Mul", ["half"]), ("Add", ["middle"])]
    nodes, value = [], []
    for index, (kind, inputs) in enumerate(chain):
        output = "y" if index == len(chain) - 1 else f"v{index}"
        nodes.append(helper.make_node(kind, [*value, *inputs], [output]))
        value = [output]
    ports = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", size])
        for name, size in (("x", OBSERVED), ("y", ACTED))
    ]
    weights = [numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "bare", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return session_of(model.SerializeToString())


def session_of(content: bytes) -> onnxruntime.InferenceSession:
    """Open a model on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def bare_torch(policy: Policy) -> Callable[[np.ndarray], np.ndarray]:
    """Write the policy as one would by hand in torch."""
    import torch

    torch.set_num_threads(1)
    layers = [tuple(torch.tensor(array) for array in pair) for pair in weights_of(policy)]
    mean, var = (torch.tensor(np.asarray(a)) for a in (policy.obs_scaling.mean, policy.obs_scaling.var))
    deviation = torch.sqrt(var + 1e-8)

    @torch.inference_mode()
    def act(observation: np.ndarray) -> np.ndarray:
        x = torch.clamp((torch.from_numpy(observation) - mean) / deviation, -10.0, 10.0)
        for kernel, bias in layers:
            x = torch.tanh(x @ kernel + bias)
        return (x * 1.25 + 0.75).numpy()

    return act


def ways(folder: Path) -> dict[str, Act]:
    """Return every way of acting on one observation; all of them are checked to act the same."""
    policy = make_policy()
    observation = np.random.default_rng(0).normal(50, 20, OBSERVED).astype(np.float32)
    row = observation[None]
    exported = OnnxPolicy(export_policy(policy, folder / "policy.onnx"))
    plain = NumpyPolicy(export_policy(policy, folder / "policy.safetensors"))
    hand, numpy_hand, torch_hand = bare_onnx(policy), bare_numpy(policy), bare_torch(policy)
    jitted = jax.jit(policy.get_action)
    acts: dict[str, Act] = {
        "ONNX file": lambda: exported.session.run(["action"], {"observation": row})[0],
        "ONNX by hand": lambda: hand.run(["y"], {"x": row})[0],
        "NumpyPolicy": lambda: plain.act(observation),
        "NumPy by hand": lambda: numpy_hand(observation),
        "OnnxPolicy.act": lambda: exported.act(observation),
        "JAX, jitted": lambda: np.asarray(jitted(observation)),
        "torch": lambda: torch_hand(observation),
    }
    for name, act in acts.items():
        np.testing.assert_allclose(
            np.ravel(act()), policy.get_action(observation), rtol=1e-5, atol=1e-5, err_msg=name
        )
    return acts


def medians(acts: dict[str, Act], rounds: int) -> dict[str, float]:
    """Return the median time of a call in microseconds."""
    times: dict[str, list[int]] = {name: [] for name in acts}
    for _ in range(rounds):
        for name, act in acts.items():
            times[name] += [timed(act) for _ in range(CALLS)]
    return {name: float(np.median(taken)) / 1000 for name, taken in times.items()}


def timed(act: Act) -> int:
    """Return the nanoseconds of one call."""
    began = time.perf_counter_ns()
    act()
    return time.perf_counter_ns() - began


def main() -> None:
    """Measure, print and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100, help="rounds of 200 calls each")
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        acts = ways(Path(folder))
        medians(acts, 2)
        found = medians(acts, rounds)
    ratios = {
        "ONNX file / by hand": found["ONNX file"] / found["ONNX by hand"],
        "NumpyPolicy / by hand": found["NumpyPolicy"] / found["NumPy by hand"],
    }
    for name, microseconds in found.items():
        print(f"{name:18} {microseconds:7.1f} µs")
    for name, ratio in ratios.items():
        print(f"{name:22} {ratio:.3f}")
    print(save("inference", {"conditions": conditions(), "microseconds": found, "ratios": ratios}))


if __name__ == "__main__":
    main()
