"""How the observations and actions of a `ParallelEnv` lie in arrays, group by group of equal agents.

A layout is read off the spaces once, in the process that learns, and travels to the workers; it holds names,
sizes and bounds only.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from dressage.errors import ConfigError, EnvironmentContractError, UnsupportedSpaceError

ACTION_MASK = "action_mask"
INTERVENED = (
    "shield_intervened"  # As `dressage.envs.multi_agent` has it, which workers do not load: it brings JAX.
)
"""Key of an observation or an info under which the legal choices stand."""

ROUNDING = 1e-6
"""How far an action may lie past a bound, as a part of the bound's size: what float32 rounding does."""


@dataclass(frozen=True)
class ObservationPart:
    """One array or one set of categories within an observation.

    Attributes:
        path: The keys of Dict and Tuple observations that lead to it.
        shape: Its own shape.
        start: Where it begins in the flat row.
        stop: Where it ends.
        nvec: Categories of each component where it is made one-hot; empty for numbers.
        first: The least legal value of each component.
    """

    path: tuple[Any, ...]
    shape: tuple[int, ...]
    start: int
    stop: int
    nvec: tuple[int, ...] = ()
    first: tuple[int, ...] = ()


@dataclass(frozen=True)
class ObservationLayout:
    """How an observation becomes one flat row, in the order of `gymnasium.spaces.flatten`.

    Attributes:
        parts: Its parts, side by side.
    """

    parts: tuple[ObservationPart, ...]

    @property
    def size(self) -> int:
        """Length of the flat row."""
        return self.parts[-1].stop

    @property
    def is_vector(self) -> bool:
        """Whether the observation is a row of numbers already."""
        return len(self.parts) == 1 and not self.parts[0].path and self.parts[0].shape == (self.size,)

    def write(self, row: npt.NDArray[np.float32], observation: Any) -> None:  # noqa: ANN401
        """Flatten one observation into a row `[size]`.

        Raises:
            EnvironmentContractError: If it has another structure or shape, or a category out of range; the
                text says what, and the caller adds where.
        """
        for part in self.parts:
            value = observation
            for key in part.path:
                value = _item(value, key)
            array = np.asarray(value)
            if array.shape != part.shape:
                raise EnvironmentContractError(
                    f"has shape {array.shape}{_at(part.path)}; its space says {part.shape}"
                )
            if part.nvec:
                _write_one_hot(row[part.start : part.stop], array, part)
            else:
                row[part.start : part.stop] = array.ravel()


@dataclass(frozen=True)
class ActionPart:
    """One array of an action.

    Attributes:
        name: Its key in a Dict, its position in a Tuple, None for a whole action.
        shape: Its shape as the environment takes it.
        dtype: Name of the space's dtype.
        low: Least legal value, one for each element.
        high: Greatest legal value, likewise.
        scalar: Whether the environment takes a scalar, not an array of no axes.
    """

    name: str | int | None
    shape: tuple[int, ...]
    dtype: str
    low: tuple[float, ...]
    high: tuple[float, ...]
    scalar: bool


@dataclass(frozen=True)
class ActionLayout:
    """How an agent's actions lie in arrays.

    Attributes:
        form: `single`, `dict` or `tuple`.
        parts: The parts in the space's own order; one for `single`.
    """

    form: str
    parts: tuple[ActionPart, ...]

    @property
    def is_array(self) -> bool:
        """Whether an action is what indexing an array by agent and copy gives."""
        return self.form == "single" and (self.parts[0].scalar or bool(self.parts[0].shape))


@dataclass(frozen=True)
class AgentGroup:
    """Agents with equal spaces.

    Attributes:
        agents: Their names, in the order of `possible_agents`.
        observation: How their observations are flattened, action masks left out.
        action: How their actions are laid out.
        nvec: Categories of each discrete component of the action, which masks are about.
        mask_from: Where a mask is read: `observation`, `info` or None.
        observation_key: Where the observation lies beside its mask: the key of the only other part, or None
            for the whole.
        shielded: Whether every one of them acts behind a shield, whose interventions stand in its infos.
    """

    agents: tuple[str, ...]
    observation: ObservationLayout
    action: ActionLayout
    nvec: tuple[int, ...] = ()
    mask_from: str | None = None
    observation_key: str | None = None
    shielded: bool = False

    @property
    def mask_size(self) -> int:
        """Length of an action mask; 0 without masks."""
        return sum(self.nvec) if self.mask_from else 0


@dataclass(frozen=True)
class ParallelLayout:
    """How everything that copies of a `ParallelEnv` exchange with a learner lies in arrays.

    Attributes:
        groups: Groups of equal agents, by their first agent's place in `possible_agents`.
        cost_key: Key of an agent's info under which a step's cost stands; None reads no costs.
        cost_default: The cost where the key is missing; None makes that an error.
        costs_reported: Whether costs are for reports only: what is no number counts as `cost_default`.
    """

    groups: tuple[AgentGroup, ...]
    cost_key: str | None = None
    cost_default: float | None = None
    costs_reported: bool = False

    @property
    def agents(self) -> tuple[str, ...]:
        """All agents, group by group."""
        return tuple(agent for group in self.groups for agent in group.agents)


def parallel_layout(
    env: Any,  # noqa: ANN401 (PettingZoo says nothing about its types)
    *,
    groups: Sequence[Sequence[str]] | None = None,
    cost_key: str | None = None,
    cost_default: float | None = None,
    costs_reported: bool = False,
) -> ParallelLayout:
    """Read the layout off one copy of an environment; the copy is reset to find masks in its infos.

    Who acts behind a shield says the environment's `shielded_agents`, as `ShieldedParallelEnv` and the
    face of a shielded functional environment have them.

    Args:
        env: A PettingZoo `ParallelEnv`, or what has its face.
        groups: Who is stacked with whom; by default agents with equal spaces.
        cost_key: Key of an agent's info under which a step's cost stands; None reads no costs.
        cost_default: The cost where the key is missing; None makes that an error at that step.
        costs_reported: Whether costs are for reports only: what is no number counts as `cost_default`.

    Raises:
        EnvironmentContractError: If the environment has no `possible_agents`, or `reset` gives no agent.
        ConfigError: If `groups` does not name every agent once, or stacks unlike agents.
        UnsupportedSpaceError: If an agent's space is not supported; it names the agent.
    """
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        raise EnvironmentContractError(
            f"{type(env).__name__} has no possible_agents: give it the list of all agents that may ever act."
        )
    _, infos = env.reset(seed=0)
    layouts = {agent: _agent_layout(env, agent, infos) for agent in agents}
    named = _equal_agents(layouts) if groups is None else [list(group) for group in groups]
    if sorted(agent for group in named for agent in group) != sorted(agents):
        raise ConfigError(f"groups must name each of {agents} once, got {named}.")
    for group in named:
        unlike = [agent for agent in group if layouts[agent] != layouts[group[0]]]
        if unlike:
            raise ConfigError(
                f"groups stack agents with equal spaces only: {unlike[0]!r} differs from {group[0]!r}."
            )
    shielded = frozenset(getattr(env, "shielded_agents", ()))
    made = tuple(
        AgentGroup(tuple(group), *layouts[group[0]], shielded=shielded.issuperset(group)) for group in named
    )
    return ParallelLayout(made, cost_key, cost_default, costs_reported)


def without_mask(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """Return an observation space less its action mask; a Dict with one other part becomes that part."""
    if not isinstance(space, spaces.Dict) or ACTION_MASK not in space.spaces:
        return space
    rest = {name: part for name, part in space.spaces.items() if name != ACTION_MASK}
    return next(iter(rest.values())) if len(rest) == 1 else spaces.Dict(rest)


def observation_layout(agent: str, space: gymnasium.Space[Any]) -> ObservationLayout:
    """Read the layout of an observation off its space.

    Raises:
        UnsupportedSpaceError: If a part has no fixed size or holds nothing.
    """
    parts: list[ObservationPart] = []
    _add_parts(parts, agent, space, ())
    if not parts:
        raise UnsupportedSpaceError(f"Agent {agent!r} observes {space}, which holds nothing.")
    return ObservationLayout(tuple(parts))


def action_layout(agent: str, space: gymnasium.Space[Any]) -> ActionLayout:
    """Read the layout of an action off its space.

    Raises:
        UnsupportedSpaceError: If the space, or a part of it, is no array of fixed shape.
    """
    match space:
        case spaces.Dict(spaces=parts):
            return ActionLayout("dict", tuple(_action_part(agent, name, one) for name, one in parts.items()))
        case spaces.Tuple(spaces=parts):
            return ActionLayout(
                "tuple", tuple(_action_part(agent, name, one) for name, one in enumerate(parts))
            )
    return ActionLayout("single", (_action_part(agent, None, space),))


_Layout = tuple[ObservationLayout, ActionLayout, tuple[int, ...], str | None, str | None]


def _agent_layout(env: Any, agent: str, infos: Any) -> _Layout:  # noqa: ANN401
    observed, acted = env.observation_space(agent), env.action_space(agent)
    rest = without_mask(observed)
    nvec = _categories(acted)
    mask_from = "observation" if rest is not observed else None
    if mask_from is None and isinstance(infos, Mapping) and ACTION_MASK in (infos.get(agent) or {}):
        mask_from = "info"
    if mask_from and not nvec:
        raise UnsupportedSpaceError(
            f"Agent {agent!r} has an action mask, but its action space {acted} has no discrete component."
        )
    key = None
    if mask_from == "observation" and not isinstance(rest, spaces.Dict):
        key = next(name for name in observed.spaces if name != ACTION_MASK)
    return observation_layout(agent, rest), action_layout(agent, acted), nvec, mask_from, key


def _equal_agents(layouts: Mapping[str, _Layout]) -> list[list[str]]:
    groups: dict[_Layout, list[str]] = {}
    for agent, layout in layouts.items():
        groups.setdefault(layout, []).append(agent)
    return list(groups.values())


def _add_parts(
    parts: list[ObservationPart], agent: str, space: gymnasium.Space[Any], path: tuple[Any, ...]
) -> None:
    shape = tuple(space.shape or ())
    start = parts[-1].stop if parts else 0
    match space:
        case spaces.Dict(spaces=inner):
            for name, part in inner.items():
                _add_parts(parts, agent, part, (*path, name))
        case spaces.Tuple(spaces=inner):
            for index, part in enumerate(inner):
                _add_parts(parts, agent, part, (*path, index))
        case spaces.Discrete(n=n, start=first):
            parts.append(ObservationPart(path, (), start, start + int(n), (int(n),), (int(first),)))
        case spaces.MultiDiscrete(nvec=nvec, start=firsts):
            sizes, least = _integers(nvec), _integers(firsts)
            parts.append(ObservationPart(path, shape, start, start + sum(sizes), sizes, least))
        case spaces.Box() | spaces.MultiBinary() if math.prod(shape) > 0:
            parts.append(ObservationPart(path, shape, start, start + math.prod(shape)))
        case _:
            raise UnsupportedSpaceError(
                f"Agent {agent!r} observes {space}{_at(path)}, which is not supported; supported: Box, "
                "Discrete, MultiDiscrete, MultiBinary, and Dict and Tuple of these."
            )


def _action_part(agent: str, name: str | int | None, space: gymnasium.Space[Any]) -> ActionPart:
    shape = tuple(space.shape or ())
    low: npt.NDArray[Any]
    match space:
        case spaces.Discrete(n=n, start=start):
            low, high = np.array([int(start)]), np.array([int(start) + int(n) - 1])
        case spaces.MultiDiscrete(nvec=nvec, start=start):
            low, high = np.array(_integers(start)), np.array(_integers(start)) + _integers(nvec) - 1
        case spaces.MultiBinary():
            low, high = np.zeros(math.prod(shape)), np.ones(math.prod(shape))
        case spaces.Box() if math.prod(shape) > 0:
            low, high = np.ravel(space.low), np.ravel(space.high)
        case _:
            raise UnsupportedSpaceError(
                f"Agent {agent!r} acts in {space}, which is not supported; supported: Discrete, "
                "MultiDiscrete, MultiBinary, Box, and a Dict or Tuple of these."
            )
    bounds = tuple(map(float, low)), tuple(map(float, high))
    scalar = isinstance(space, spaces.Discrete)
    return ActionPart(name, shape, str(np.dtype(space.dtype)), *bounds, scalar)


def _categories(space: gymnasium.Space[Any]) -> tuple[int, ...]:
    match space:
        case spaces.Discrete(n=n):
            return (int(n),)
        case spaces.MultiDiscrete(nvec=nvec):
            return _integers(nvec)
        case spaces.MultiBinary():
            return (2,) * math.prod(space.shape or ())
        case spaces.Dict(spaces=parts):
            return tuple(n for part in parts.values() for n in _categories(part))
        case spaces.Tuple(spaces=parts):
            return tuple(n for part in parts for n in _categories(part))
    return ()


def _write_one_hot(row: npt.NDArray[np.float32], values: npt.NDArray[Any], part: ObservationPart) -> None:
    row[:] = 0.0
    offset = 0
    for value, size, first in zip(values.ravel().tolist(), part.nvec, part.first, strict=True):
        index = value - first
        if index != int(index) or not 0 <= index < size:
            raise EnvironmentContractError(
                f"is {value}{_at(part.path)}; its space holds {first} to {first + size - 1}"
            )
        row[offset + int(index)] = 1.0
        offset += size


def _item(value: Any, key: Any) -> Any:  # noqa: ANN401
    try:
        return value[key]
    except (KeyError, IndexError, TypeError) as error:
        raise EnvironmentContractError(f"has no part {key!r}") from error


def _at(path: tuple[Any, ...]) -> str:
    return f" at {'.'.join(map(str, path))}" if path else ""


def _integers(values: Any) -> tuple[int, ...]:  # noqa: ANN401
    return tuple(int(value) for value in np.ravel(values))
