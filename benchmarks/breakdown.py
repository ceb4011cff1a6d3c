"""Tell where the time of an update goes: every stage on its own, beside the arithmetic that it must do.

The stages are compiled apart from each other and fed with what a real run feeds them, so that their sum
need not be the time of a whole update (which is measured as well): XLA fuses across stages, and a stage
alone pays a few microseconds for being called. "at the floor" is what a stage's arithmetic would take at
the rate of the chain of products in `floor.py`; a stage without any has none.

    python benchmarks/breakdown.py --row cartpole-2048
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import jax
import jax.numpy as jnp
from floor import FloorMeter, forward_flops, gradient_flops
from jax import Array, lax
from machine import conditions, save
from rows import ROWS

from dressage import envs, ppo
from dressage.learning import scan_driver
from dressage.learning.batches import Batch
from dressage.learning.flat_parameters import ravel_parameters
from dressage.learning.minibatches import Packing, minibatch_indices
from dressage.learning.proximal import Optimisation, ProximalLearner
from dressage.learning.records import AgentState, Experience
from dressage.learning.targets import advantage_targets
from dressage.learning.values import following_values, rollout_values
from dressage.networks import apply_value
from dressage.ppo.session import Session

Record = dict[str, Any]


@dataclass(frozen=True)
class Stage:
    """One part of an update.

    Attributes:
        name: What it does.
        function: Does it once, as often as one update does.
        arguments: What a real run would hand to it.
        flops: Arithmetic of the networks in it.
    """

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    flops: int = 0


@dataclass(frozen=True)
class Arithmetic:
    """Operations of the networks on one sample.

    Attributes:
        act: The actor's pass forward.
        value: The critic's pass forward.
        learn: One epoch's pass forward and backward through both.
    """

    act: int
    value: int
    learn: int

    @classmethod
    def of(cls, learner: ProximalLearner, config: ppo.Config) -> "Arithmetic":
        """Count from the sizes of the networks."""
        spec, hidden = learner.head.spec, [config.NUM_HIDDEN_UNITS] * config.NUM_HIDDEN_LAYERS
        actor, critic = [spec.obs_dim, *hidden, spec.action_dim], [spec.obs_dim, *hidden, 1]
        return cls(
            forward_flops(actor), forward_flops(critic), gradient_flops(actor) + gradient_flops(critic)
        )


def stages(task: str, config: ppo.Config) -> list[Stage]:
    """Take an update apart, after one update has given it real numbers; the whole comes last."""
    session = Session.of(envs.make(task), config)
    env, groups, steps = session.env, session.groups, config.NUM_STEPS
    state = scan_driver.init(env, groups, jax.random.key(0))
    state, _, _ = jax.jit(lambda state: scan_driver.update(env, groups, steps, state))(state)
    _, noise_keys, _ = scan_driver.update_keys(state.key, 1)
    noise = jax.jit(lambda keys: scan_driver.draw_noise(groups, keys, steps, env.copies))(noise_keys)
    _, _, rollouts = jax.jit(lambda state, noise: scan_driver.collect(env, groups, state, noise))(
        state, noise
    )
    samples, arithmetic = env.copies * steps, Arithmetic.of(groups[0].learner, config)
    return [
        Stage(
            "action noise",
            lambda keys: scan_driver.draw_noise(groups, keys, steps, env.copies),
            (noise_keys,),
        ),
        Stage(
            "rollout: act, step, reset",
            lambda state, noise: scan_driver.collect(env, groups, state, noise),
            (state, noise),
            samples * arithmetic.act,
        ),
        *_learning_stages(groups[0].learner, state.agents[0], rollouts[0], arithmetic),
        Stage(
            "whole update",
            lambda state: scan_driver.update(env, groups, steps, state)[0],
            (state,),
            samples * (arithmetic.act + arithmetic.value + config.UPDATE_EPOCHS * arithmetic.learn),
        ),
    ]


def _learning_stages(
    learner: ProximalLearner, agent: AgentState, rollout: Experience, arithmetic: Arithmetic
) -> list[Stage]:
    values, next_values = jax.jit(lambda agent, rollout: _values(learner, agent, rollout))(agent, rollout)
    batch = jax.jit(lambda *inputs: _flat_batch(learner, *inputs))(rollout, values, next_values)
    packing, samples, key = Packing.of(batch), values.size, jax.random.key(1)
    packed = packing.pack(batch)
    indices, _ = minibatch_indices(key, samples, learner.epochs, learner.minibatches)
    minibatches = jax.tree.map(lambda leaf: leaf[indices], batch)
    parameters, _ = ravel_parameters(agent.params)
    gradients = jnp.broadcast_to(parameters * 1e-3, (indices.shape[0], parameters.size))
    start = Optimisation(parameters, agent.opt_state, agent.optimizer_steps)
    return [
        Stage(
            "critic over the rollout and what followed",
            lambda agent, rollout: _values(learner, agent, rollout),
            (agent, rollout),
            samples * arithmetic.value,
        ),
        Stage("advantages", lambda *inputs: _targets(learner, *inputs), (rollout, values, next_values)),
        Stage(
            "shuffles",
            lambda key: minibatch_indices(key, samples, learner.epochs, learner.minibatches),
            (key,),
        ),
        Stage("packing", packing.pack, (batch,)),
        Stage("gathers", _gather, (packed, indices)),
        Stage(
            "gradients",
            lambda parameters, minibatches: _gradients(learner, agent.params, parameters, minibatches),
            (parameters, minibatches),
            samples * learner.epochs * arithmetic.learn,
        ),
        Stage("clipping and Adam", lambda *inputs: _optimise(learner, agent, *inputs), (start, gradients)),
    ]


def _values(learner: ProximalLearner, agent: AgentState, rollout: Experience) -> tuple[Array, Array]:
    features = learner.normalized(agent, rollout.observed.features)
    final_features = learner.normalized(agent, rollout.outcome.final_features)
    critic = partial(apply_value, learner.network, agent.params)
    values = rollout_values(critic, features)
    return values, following_values(critic, values, final_features, rollout.outcome)


def _targets(learner: ProximalLearner, rollout: Experience, values: Array, next_values: Array) -> Any:  # noqa: ANN401
    outcome, hyper = rollout.outcome, learner.hyper
    ends = (outcome.terminated, outcome.episode_ends)
    return advantage_targets(
        outcome.rewards, *ends, values, next_values, outcome.valid, hyper.gamma, hyper.gae_lambda
    )


def _flat_batch(learner: ProximalLearner, rollout: Experience, values: Array, next_values: Array) -> Batch:
    targets = _targets(learner, rollout, values, next_values)
    distribution = learner.head.distribution(rollout.policy_outputs, rollout.observed.action_mask)
    batch = Batch(
        features=rollout.observed.features,
        action_mask=None,
        actions=rollout.actions,
        log_probs=distribution.log_prob(rollout.actions),
        advantages=targets.advantages,
        returns=targets.returns,
        values=values,
        valid=None,
    )
    return jax.tree.map(lambda leaf: leaf.reshape(values.size, *leaf.shape[2:]), batch)


def _gather(packed: Array, indices: Array) -> Array:
    """Gather every minibatch and touch it, as the loss would."""
    body = lambda total, row: (total + lax.optimization_barrier(packed[row])[0], None)  # noqa: E731
    return lax.scan(body, packed[0], indices)[0]


def _gradients(learner: ProximalLearner, tree: Any, parameters: Array, minibatches: Batch) -> Array:  # noqa: ANN401
    """Compute every minibatch's gradient; each depends a little on the one before, as in training."""
    _, unravel = ravel_parameters(tree)
    loss = jax.grad(lambda flat, batch: learner._loss(unravel(flat), batch, None, None)[0])  # noqa: SLF001
    step = lambda flat, batch: (flat - 1e-6 * loss(flat, batch), None)  # noqa: E731
    return lax.scan(step, parameters, minibatches)[0]


def _optimise(
    learner: ProximalLearner, agent: AgentState, start: Optimisation, gradients: Array
) -> Optimisation:
    metrics = {"loss": jnp.float32(0)}
    apply = learner._apply_gradient  # noqa: SLF001 (stage by stage)
    step = lambda carry, gradient: (apply(carry, gradient, agent.learning_rate, metrics, None)[0], None)  # noqa: E731
    return lax.scan(step, start, gradients)[0]


def measure(task: str, config: ppo.Config, repeats: int) -> Record:
    """Run the stages in turn.

    Returns:
        Median milliseconds of every stage, its FLOP and the chain's rate, measured in the same turns.
    """
    parts = stages(task, config)
    executables = [jax.jit(part.function).lower(*part.arguments).compile() for part in parts]
    meter = FloorMeter()
    seconds: list[list[float]] = [[] for _ in parts]
    rates: list[float] = []
    for _ in range(repeats):
        rates.append(meter.chain_rate(calls=10))
        for index, (part, executable) in enumerate(zip(parts, executables, strict=True)):
            seconds[index].append(_seconds(executable, part.arguments))
    rows = [
        {
            "stage": part.name,
            "milliseconds": median(times) * 1e3,
            "smallest": min(times) * 1e3,
            "flops": part.flops,
        }
        for part, times in zip(parts, seconds, strict=True)
    ]
    return {"gflops": median(rates) / 1e9, "stages": rows, "samples": config.NUM_ENVS * config.NUM_STEPS}


def _seconds(executable: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    start = time.perf_counter()
    jax.block_until_ready(executable(*arguments))
    return time.perf_counter() - start


def show(name: str, record: Record) -> None:
    """Print the stages with their share of the whole update."""
    whole = record["stages"][-1]["milliseconds"]
    print(
        f"\n{name}: {record['samples']:,} samples an update; the chain reaches {record['gflops']:.0f} GFLOP/s"
    )
    print(f"  {'':42} {'ms':>9} {'of whole':>9} {'at the floor, ms':>17} {'of floor':>9}")
    for row in record["stages"]:
        bound = row["flops"] / record["gflops"] / 1e6
        floor = f"{bound:17.3f} {bound / row['milliseconds']:9.0%}" if bound else ""
        print(f"  {row['stage']:42} {row['milliseconds']:9.3f} {row['milliseconds'] / whole:9.1%} {floor}")
    parts = sum(row["milliseconds"] for row in record["stages"][:-1])
    print(f"  {'sum of the stages':42} {parts:9.3f} {parts / whole:9.1%}", flush=True)


def main() -> None:
    """Break down the rows that the command line names."""
    names = [row.name for row in ROWS]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--row",
        nargs="+",
        choices=names,
        default=names[:2],
        metavar="ROW",
        help=f"of {', '.join(names)}; by default the first two",
    )
    parser.add_argument("--repeats", type=int, default=21, help="turns (default 21)")
    arguments = parser.parse_args()
    content: Record = {"conditions": conditions(), "repeats": arguments.repeats}
    for row in (row for row in ROWS if row.name in arguments.row):
        settings = next(one.settings for one in row.competitors if one.name == "dressage")
        content[row.name] = measure(
            settings["task"], ppo.Config.from_mapping(settings["config"]), arguments.repeats
        )
        show(row.name, content[row.name])
    content["load_average_after"] = conditions()["load_average"]
    print(f"  written to {save('breakdown', content)}")


if __name__ == "__main__":
    main()
