"""Owns one step of the EVAL role: what rsl_rl's algorithm chooses, and what the environment answers to it.

All of it runs in torch's inference mode, in which recurrent states live.
"""

from collections.abc import Mapping
from typing import Any

import torch
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict
from torch import Tensor

from dressage.errors import EnvironmentContractError, RolloutError
from dressage.policy.base_policy import EnvRet, PolicyResponse, TimeOutRule
from dressage.policy.rsl_rl_policy.configuration import Algorithm
from dressage.policy.rsl_rl_policy.layout import Layout
from dressage.policy.rsl_rl_policy.module_states import as_tensor
from dressage.policy.rsl_rl_policy.observations import as_numbers, checked_groups, hidden_parts, join_parts

CRITIC = "critic"


def choose(
    algorithm: Algorithm, models: tuple[str, str], layout: Layout, env_ret: EnvRet, version: int, device: str
) -> PolicyResponse:
    """Sample an action for every copy, with all that learning from it needs.

    Args:
        algorithm: What acts.
        models: Names of its two models.
        layout: What observations must look like.
        env_ret: Where the environment stands.
        version: Version of the weights.
        device: Where the models live.

    Raises:
        EnvironmentContractError: If an observation group is missing, or has another shape or type.
    """
    observation = checked_groups(env_ret.observation, layout, device, repr(env_ret.env_id))
    recurrent = tuple(name for name in models if getattr(algorithm, name).is_recurrent)
    before = {name: hidden_parts(getattr(algorithm, name).get_hidden_state()) for name in recurrent}
    action = algorithm.act(observation)
    step, algorithm.transition = algorithm.transition, RolloutStorage.Transition()
    privileged = step.privileged_actions
    return PolicyResponse(
        env_id=env_ret.env_id,
        observation=observation,
        action=action,
        version=version,
        value=step.values,
        log_prob=step.actions_log_prob,
        distribution_params=tuple(step.distribution_params or ()),
        hidden_state=_started_from(algorithm, before),
        extras={} if privileged is None else {"privileged_action": privileged},
    )


def choose_mean(
    algorithm: Algorithm, layout: Layout, env_ret: EnvRet, version: int, device: str
) -> PolicyResponse:
    """Choose the distribution's mean for every copy; nothing can be learned from it."""
    observation = checked_groups(env_ret.observation, layout, device, repr(env_ret.env_id))
    action = algorithm.get_policy()(observation)
    return PolicyResponse(env_id=env_ret.env_id, observation=observation, action=action, version=version)


def answer(
    algorithm: Algorithm,
    models: tuple[str, str],
    layout: Layout,
    env_ret: EnvRet,
    pending: PolicyResponse,
    rule: TimeOutRule,
) -> PolicyResponse:
    """Join a pending response with the environment's return into a whole transition.

    Reward and flags are copied: environments write the next ones into the same memory.

    Args:
        algorithm: What acted.
        models: Names of its two models.
        layout: What observations must look like.
        env_ret: What the environment returned to the pending action.
        pending: The response.
        rule: Which value follows a time limit.

    Raises:
        EnvironmentContractError: If the return lacks reward or flags, or they have another size.
        RolloutError: If the response was answered before, or is another environment's.
    """
    if pending.reward is not None:
        raise RolloutError("The response was answered already: postprocess takes what rollout_step returned.")
    if env_ret.env_id != pending.env_id:
        raise RolloutError(
            f"The return is one of {env_ret.env_id!r}, and the response was for {pending.env_id!r}."
        )
    device = pending.action.device
    given = _answered(env_ret, "last_reward", pending)
    reward = _own(given, device, given.dtype if given.is_floating_point() else torch.float32)
    terminated = _own(_answered(env_ret, "last_terminated", pending), device, torch.bool)
    truncated = _own(_answered(env_ret, "last_truncated", pending), device, torch.bool)
    limited = bool(truncated.any())
    bootstrap: dict[str, Any] = {}
    if pending.value is not None and limited:
        bootstrap = _bootstrap(algorithm, layout, env_ret, pending.value, terminated, truncated, rule)
    elif pending.value is not None:
        bootstrap = {"bootstrap_value": torch.zeros_like(truncated, dtype=torch.float32)}
    dones = terminated | truncated if limited else terminated
    for name in models:
        getattr(algorithm, name).reset(dones)
    # Every step comes here, and `dataclasses.replace` takes twice as long.
    return PolicyResponse(
        env_id=pending.env_id,
        observation=pending.observation,
        action=pending.action,
        version=pending.version,
        value=pending.value,
        log_prob=pending.log_prob,
        distribution_params=pending.distribution_params,
        hidden_state=pending.hidden_state,
        extras=pending.extras,
        reward=reward,
        terminated=terminated,
        truncated=truncated,
        **bootstrap,
    )


def hidden_state(algorithm: Algorithm, models: tuple[str, str]) -> dict[str, Tensor]:
    """Return the recurrent state by `module/I`, `[N, layers, units]` each; empty where nothing recurs."""
    parts = {name: hidden_parts(getattr(algorithm, name).get_hidden_state()) for name in models}
    return {
        f"{name}/{index}": part.transpose(0, 1)
        for name, found in parts.items()
        for index, part in enumerate(found)
    }


def load_hidden_state(
    algorithm: Algorithm, models: tuple[str, str], state: Mapping[str, Any], device: str
) -> None:
    """Undo `hidden_state`; a module without a state begins anew."""
    for name in models:
        paths = sorted(path for path in state if path.startswith(name + "/"))
        parts = tuple(as_tensor(state[path]).to(device).transpose(0, 1).contiguous() for path in paths)
        getattr(algorithm, name).reset(hidden_state=join_parts(parts))


def _started_from(algorithm: Algorithm, before: Mapping[str, tuple[Tensor, ...]]) -> dict[str, Tensor]:
    started: dict[str, Tensor] = {}
    for name, found in before.items():
        after = hidden_parts(getattr(algorithm, name).get_hidden_state())
        # A module that has not stepped yet has no state; it starts from zeros.
        parts = found or tuple(torch.zeros_like(part) for part in after)
        started |= {f"{name}/{index}": part.transpose(0, 1) for index, part in enumerate(parts)}
    return started


def _answered(env_ret: EnvRet, field: str, pending: PolicyResponse) -> Tensor:
    value = getattr(env_ret, field)
    if value is None:
        raise EnvironmentContractError(
            f"The return of {env_ret.env_id!r} has no {field}, so it answers no action. Give postprocess "
            "what the environment returned to the step."
        )
    tensor = as_numbers(value, f"{field} of {env_ret.env_id!r}")
    copies = pending.action.shape[0]
    if tensor.shape != (copies,):
        raise EnvironmentContractError(
            f"{field} of {env_ret.env_id!r} has shape {list(tensor.shape)}; {copies} environments need "
            f"[{copies}]."
        )
    return tensor


def _own(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return a copy on a device."""
    moved = tensor.to(device, dtype)
    return moved.clone() if moved is tensor else moved


def _bootstrap(
    algorithm: Algorithm,
    layout: Layout,
    env_ret: EnvRet,
    before: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    rule: TimeOutRule,
) -> dict[str, Any]:
    """Return a transition's fields on what follows time limits; `before` is the value before the step."""
    if rule == "rsl_rl" or env_ret.final_observation is None:
        # rsl_rl's rule: the value before the step stands for the value after it.
        value = torch.squeeze(before * truncated.unsqueeze(1), 1)
        return {"bootstrap_value": value, "bootstrap_rule": "rsl_rl"}
    value = torch.zeros_like(truncated, dtype=torch.float32)
    rows = (truncated & ~terminated).nonzero().squeeze(1)
    if len(rows) == 0:
        return {"bootstrap_value": value, "bootstrap_rule": "final_observation"}
    whose = f"{env_ret.env_id!r} (final_observation)"
    seen = checked_groups(env_ret.final_observation, layout, str(truncated.device), whose)
    found, used = _final_values(algorithm.critic, seen, rows)
    value[rows] = found
    final = {"rows": rows} | {f"observation/{name}": tensor for name, tensor in seen[rows].items()} | used
    return {"bootstrap_value": value, "bootstrap_rule": "final_observation", "final": final}


def _final_values(critic: Algorithm, seen: TensorDict, rows: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    """Return values of the final observations of some rows, and the recurrent state they were read from."""
    state = hidden_parts(critic.get_hidden_state())
    if not state:
        return critic(seen[rows]).squeeze(1), {}
    chosen = tuple(part[:, rows].contiguous() for part in state)
    critic.reset(hidden_state=join_parts(chosen))
    values = critic(seen[rows]).squeeze(1)
    critic.reset(hidden_state=join_parts(state))
    return values, {
        f"hidden_state/{CRITIC}/{index}": part.transpose(0, 1) for index, part in enumerate(chosen)
    }
