"""Whether an environment keeps its contract, found out by tracing it once, before anything compiles."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from dressage.config import whole_number
from dressage.envs.functional import FINAL_OBSERVATION, BaseEnv, PyTree
from dressage.envs.multi_agent import MultiAgentEnv
from dressage.envs.spaces import Space, as_space, size
from dressage.errors import EnvironmentContractError, UnsupportedSpaceError


def check_environment(env: BaseEnv) -> tuple[Space, Space]:
    """Check an environment's spaces, shapes, dtypes and state, and return its spaces.

    `reset` and `step` are traced, not run. Values cannot be checked so: whether an observation is finite and
    within its space shows at run time.

    Args:
        env: A functional environment.

    Returns:
        `(observation_space, action_space)`; bounds that depend on the state may be abstract in them.

    Raises:
        EnvironmentContractError: If something has the wrong structure, shape or dtype; the text names the
            environment, the place, what was expected and what came.
        UnsupportedSpaceError: If a space is of a kind that is not supported, or empty.
    """
    if not isinstance(env, BaseEnv):
        raise EnvironmentContractError(f"An environment must derive from BaseEnv, got {type(env).__name__}.")
    name = type(env).__name__
    check_max_steps(env, name)
    key = jax.eval_shape(lambda: jax.random.key(0))
    started = returned_items(env.reset, (key,), ("state", "observation", "info"), f"{name}.reset")
    state = started["state"]
    observation_space = check_space(env.observation_space, state, f"{name}.observation_space")
    action_space = check_space(env.action_space, state, f"{name}.action_space")
    check_observation(started["observation"], observation_space, f"{name}.reset")
    action = jax.eval_shape(lambda: jnp.zeros(action_space.shape, action_space.dtype))
    names = ("state", "observation", "reward", "terminated", "truncated", "info")
    stepped = returned_items(env.step, (state, action), names, f"{name}.step")
    check_state(state, stepped["state"], name)
    check_observation(stepped["observation"], observation_space, f"{name}.step")
    check_scalar(stepped["reward"], "reward", f"{name}.step", real=True)
    check_scalar(stepped["terminated"], "terminated", f"{name}.step", real=False)
    check_scalar(stepped["truncated"], "truncated", f"{name}.step", real=False)
    if env.resets_itself:
        _check_final_observation(stepped["info"], observation_space, f"{name}.step")
    return observation_space, action_space


def check_max_steps(env: BaseEnv | MultiAgentEnv, name: str) -> None:
    """Refuse a time limit that is no positive integer."""
    given = getattr(env, "max_steps", None)
    number = whole_number(given)
    if number is None or number < 1:
        raise EnvironmentContractError(
            f"{name}.max_steps must be an integer >= 1 (the longest episode in steps), got {given!r}."
        )


def returned_items(
    function: Callable[..., Any], arguments: tuple[Any, ...], names: tuple[str, ...], place: str
) -> dict[str, PyTree]:
    """Trace `reset` or `step` and name the items of the tuple that it returns; refuse anything else."""
    try:
        returned = jax.eval_shape(function, *arguments)
    except TypeError as error:
        # What the function itself raises comes out as it is; this is JAX's word on what it returned.
        if "not a valid JAX type" not in str(error):
            raise
        raise EnvironmentContractError(f"{place} must return arrays and numbers only: {error}.") from error
    if not isinstance(returned, tuple) or len(returned) != len(names):
        came = f"{len(returned)} items" if isinstance(returned, tuple) else f"a {type(returned).__name__}"
        raise EnvironmentContractError(f"{place} must return ({', '.join(names)}), got {came}.")
    items = dict(zip(names, returned, strict=True))
    if not isinstance(items[names[-1]], dict):
        raise EnvironmentContractError(
            f"{place} must return a dict as {names[-1]}, got {type(items[names[-1]]).__name__}."
        )
    return items


def check_space(space_of: Any, state: PyTree, place: str) -> Space:  # noqa: ANN401
    """Return the space that a function of the state gives; refuse one that is not supported, or empty."""
    found: list[Space] = []

    def trace(state: PyTree) -> Space:
        found.append(as_space(space_of(state)))
        return found[0]

    try:
        jax.eval_shape(trace, state)
    except UnsupportedSpaceError as error:
        raise UnsupportedSpaceError(f"{place}: {error}") from error
    if size(found[0]) == 0:
        raise UnsupportedSpaceError(f"{place}: a space of shape {found[0].shape} holds no numbers.")
    return found[0]


def check_observation(observation: PyTree, space: Space, place: str) -> None:
    """Refuse an observation whose shape or dtype is not its space's."""
    if not isinstance(observation, jax.ShapeDtypeStruct):
        raise EnvironmentContractError(
            f"{place} must return an observation in {space!r}, got a {type(observation).__name__}."
        )
    if observation.shape != space.shape:
        raise EnvironmentContractError(
            f"{place} returned an observation of shape {observation.shape}; its space has {space.shape}."
        )
    if observation.dtype != space.dtype:
        raise EnvironmentContractError(
            f"{place} returned an observation of dtype {observation.dtype}; its space has {space.dtype}."
        )


def check_state(before: PyTree, after: PyTree, name: str) -> None:
    """Refuse a state that a step changes in structure, shape or dtype."""
    expected, got = str(jax.tree.structure(before)), str(jax.tree.structure(after))
    if expected != got:
        raise EnvironmentContractError(
            f"{name}.step must return a state of the structure that reset returns, {expected}, got {got}."
        )
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, first), second in pairs:
        if (first.shape, first.dtype) != (second.shape, second.dtype):
            place = f"state{jax.tree_util.keystr(path)}"
            raise EnvironmentContractError(
                f"{name}.step must keep the state's shapes and dtypes: {place} is {_described(first)} after "
                f"reset and {_described(second)} after step."
            )


def _described(leaf: jax.ShapeDtypeStruct) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}"


def check_scalar(value: Any, field: str, place: str, *, real: bool) -> None:  # noqa: ANN401
    """Refuse what is no scalar: a real one, or else a boolean one."""
    shape = getattr(value, "shape", None)
    fits = shape == () and (
        jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer)
        if real
        else value.dtype == jnp.bool_
    )
    if not fits:
        came = _described(value) if shape is not None else type(value).__name__
        expected = "a real scalar" if real else "a boolean scalar"
        raise EnvironmentContractError(f"{place} must return {expected} as {field}, got {came}.")


def _check_final_observation(info: dict[str, PyTree], space: Space, place: str) -> None:
    if FINAL_OBSERVATION not in info:
        raise EnvironmentContractError(
            f"{place} resets itself, so it must keep what the action led to in info[{FINAL_OBSERVATION!r}]; "
            f"info has {sorted(info)}."
        )
    check_observation(info[FINAL_OBSERVATION], space, f"{place} info[{FINAL_OBSERVATION!r}]")
