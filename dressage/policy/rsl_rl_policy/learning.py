"""Owns filling rsl_rl's storage with a rollout that another policy made, through rsl_rl's own code.

The steps are replayed into `process_env_step` and `compute_returns`, so intrinsic rewards, time-outs and
whatever a derived algorithm adds happen as they do in rsl_rl's runner.
"""

import copy
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from dressage.errors import NonFiniteError, RolloutError
from dressage.policy.finite import holds_nan
from dressage.policy.rsl_rl_policy.configuration import Algorithm
from dressage.policy.rsl_rl_policy.fragments import Tensors, group, numbered
from dressage.policy.rsl_rl_policy.observations import join_parts
from dressage.policy.rsl_rl_policy.optimizers import stepping_together


@dataclass(frozen=True)
class Filled:
    """What filling the storage found, for the metrics.

    Attributes:
        time_outs_final: Time limits that were followed by the value of the final observation.
        time_outs_rsl_rl: Time limits that were followed by rsl_rl's own rule.
        intrinsic_reward: Mean intrinsic reward; None without random network distillation.
    """

    time_outs_final: int
    time_outs_rsl_rl: int
    intrinsic_reward: float | None = None


@contextmanager
def all_or_nothing(algorithm: Algorithm, models: tuple[str, str]) -> Iterator[None]:
    """Leave the storage empty, and what else filling it changes as it was, where that fails on the way."""
    rnd = getattr(algorithm, "rnd", None)
    before = {} if rnd is None else _curiosity(rnd)
    try:
        yield
    except BaseException:
        algorithm.storage.clear()
        algorithm.transition.clear()
        for name in models:
            getattr(algorithm, name).reset()
        for name, value in before.items():
            setattr(rnd, name, value)
        raise


def fill(algorithm: Algorithm, models: tuple[str, str], steps: Tensors, last: Tensors) -> Filled:
    """Replay a rollout into the storage and compute the returns.

    Args:
        algorithm: What learns; its storage must be empty.
        models: Names of its two models.
        steps: By path, `[T, N, ...]`.
        last: What held after the last step, by path, `[N, ...]`.

    """
    observations = observation_rows(steps, last)
    by_final, by_rule = time_outs(steps)
    rewards = steps["reward"]
    if bool(by_final.any()):
        rewards = rewards + algorithm.gamma * steps["bootstrap_value"] * by_final
    dones = steps["terminated"] | steps["truncated"]
    for name in models:
        getattr(algorithm, name).reset()
    intrinsic = []
    answers = (observations[:-1], observations[1:], rewards, dones, by_rule)
    for held, seen, after, reward, done, time_out in zip(_transitions(models, steps), *answers, strict=True):
        vars(algorithm.transition).update(held, observations=seen)
        algorithm.process_env_step(after, reward, done, {"time_outs": time_out})
        intrinsic.append(getattr(algorithm, "intrinsic_rewards", None))
    _compute_returns(algorithm, last, observations[-1])
    found = [rewards.mean() for rewards in intrinsic if rewards is not None]
    mean = float(torch.stack(found).mean()) if found else None
    return Filled(int(by_final.sum()), int(by_rule.sum()), mean)


def _curiosity(rnd: Any) -> dict[str, Any]:  # noqa: ANN401 (the package ships no types)
    """Return copies of what intrinsic rewards change where they are computed."""
    counts = {name: value for name, value in vars(rnd).items() if isinstance(value, int | float)}
    return counts | {"reward_normalizer": copy.deepcopy(rnd.reward_normalizer)}


def check_size(algorithm: Algorithm, steps: Tensors) -> None:
    """Refuse data that do not fill the storage exactly.

    Raises:
        RolloutError: If there are more or fewer steps or environments.
    """
    storage = algorithm.storage
    length, copies = steps["reward"].shape
    wanted = (storage.num_transitions_per_env, storage.num_envs)
    if (length, copies) != wanted:
        part = "A part-filled" if length * copies < wanted[0] * wanted[1] else "An over-full"
        raise RolloutError(
            f"The data have {length} steps of {copies} environments; the storage takes exactly {wanted[0]} "
            f"(num_steps_per_env) of {wanted[1]} (num_envs). {part} storage is not learned from."
        )


def observation_rows(steps: Tensors, last: Tensors) -> list[TensorDict]:
    """Return the observations before every step and after the last, `T + 1` in all."""
    groups = group(steps, "observation")
    length, copies = steps["reward"].shape
    rows = TensorDict(groups, batch_size=[length, copies]).unbind(0)
    return [*rows, TensorDict(group(last, "observation"), batch_size=[copies])]


def time_outs(steps: Tensors) -> tuple[Tensor, Tensor]:
    """Return which time limits are followed by the final observation's value, and which by rsl_rl's rule."""
    truncated = steps["truncated"]
    by_final = steps.get("bootstraps_final", torch.zeros_like(truncated))
    return by_final & ~steps["terminated"], truncated & ~by_final


def update(algorithm: Algorithm, modules: Iterable[nn.Module], version: int) -> dict[str, float]:
    """Make one update and return its losses by rsl_rl's names.

    Args:
        algorithm: What learns; its storage is filled.
        modules: All that it changes.
        version: Number of updates before this one.

    Raises:
        NonFiniteError: If it diverged: a loss is not finite, or it failed over weights that are NaN.
    """
    try:
        with stepping_together(algorithm):
            losses = {name: float(loss) for name, loss in algorithm.update().items()}
    except (RuntimeError, ValueError) as error:
        if any(holds_nan(tensor) for module in modules for tensor in module.state_dict().values()):
            raise _diverged(algorithm, version, f"the weights became NaN ({error})") from error
        raise
    broken = [f"the {name} loss is {value}" for name, value in losses.items() if not math.isfinite(value)]
    if broken:
        raise _diverged(algorithm, version, broken[0])
    return losses


def _diverged(algorithm: Algorithm, version: int, how: str) -> NonFiniteError:
    return NonFiniteError(
        f"Update {version} (counted from 0) diverged, and its weights are worth nothing: {how}. The learning "
        f"rate is {algorithm.learning_rate:g}: try a smaller one, or a smaller max_grad_norm. Go on from the "
        "checkpoint before."
    )


def _transitions(models: tuple[str, str], steps: Tensors) -> Iterator[dict[str, Any]]:
    """Yield what rsl_rl's transition holds besides observation, reward and end, one step after another."""
    actions = steps["action"].unbind(0)
    if "extras/privileged_action" in steps:
        for action, privileged in zip(actions, steps["extras/privileged_action"].unbind(0), strict=True):
            yield {"actions": action, "privileged_actions": privileged}
        return
    values, log_probs = steps["value"].unbind(0), steps["log_prob"].unbind(0)
    params = tuple(zip(*(part.unbind(0) for part in numbered(steps, "distribution")), strict=True))
    states = [numbered(steps, f"hidden_state/{name}") for name in models]
    for step, action in enumerate(actions):
        yield {
            "actions": action,
            "values": values[step],
            "actions_log_prob": log_probs[step],
            "distribution_params": params[step],
            "hidden_states": tuple(
                join_parts(tuple(_layers_first(p[step]) for p in parts)) for parts in states
            ),
        }


def _compute_returns(algorithm: Algorithm, last: Tensors, observation: TensorDict) -> None:
    critic: Any = getattr(algorithm, "critic", None)
    if critic is not None:
        state = tuple(_layers_first(part) for part in numbered(last, "hidden_state/critic"))
        critic.reset(hidden_state=join_parts(state))
    algorithm.compute_returns(observation)
    if critic is not None:
        critic.reset()


def _layers_first(part: Tensor) -> Tensor:
    """Turn `[N, layers, units]` into torch's `[layers, N, units]`."""
    return part.transpose(0, 1).contiguous()
