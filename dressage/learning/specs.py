"""What a learner needs to know of one agent's spaces, and the way from the environment's to its arrays."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dressage.errors import UnsupportedSpaceError

AGENT = "agent"  # The name of the only agent of a single-agent environment.
SUPPORTED_ACTIONS = "Discrete, MultiDiscrete, MultiBinary, a Box of floats, and a Dict or Tuple of both sorts"
SUPPORTED_OBSERVATIONS = "Box, Discrete, MultiDiscrete, MultiBinary, Dict and Tuple of these"


@dataclass(frozen=True)
class ActionPart:
    """One part of a Dict or Tuple action.

    Attributes:
        name: Its key in a Dict, or its position in a Tuple.
        kind: `discrete`, `multi_discrete` or `continuous`.
        shape: Shape of the part as the environment takes it.
        size: Number of its components.
    """

    name: str | int
    kind: str
    shape: tuple[int, ...]
    size: int


@dataclass(frozen=True)
class AgentSpec:
    """The sizes and bounds of one agent's spaces.

    Attributes:
        agent_id: The agent's name in its environment.
        obs_dim: Length of the flattened observation.
        action_dim: Outputs of the policy head: all logits plus the continuous dimensions.
        action_kind: `discrete`, `multi_discrete`, `continuous` or `parameterized`.
        action_nvec: Categories of each discrete component.
        action_shape: Shape of the action that the environment takes.
        action_start: First legal value of each discrete component.
        continuous_dim: Number of continuous dimensions.
        action_low: Lower bound of each continuous dimension.
        action_high: Upper bound of each continuous dimension.
        action_parts: The parts of a parameterized action, in the space's own order.
    """

    agent_id: str
    obs_dim: int
    action_dim: int
    action_kind: str
    action_nvec: tuple[int, ...]
    action_shape: tuple[int, ...]
    action_start: tuple[int, ...]
    continuous_dim: int = 0
    action_low: tuple[float, ...] = ()
    action_high: tuple[float, ...] = ()
    action_parts: tuple[ActionPart, ...] = ()


def agent_spec(
    agent_id: str, observation_space: gymnasium.Space[Any], action_space: gymnasium.Space[Any]
) -> AgentSpec:
    """Describe an agent by its Gymnasium spaces.

    Raises:
        UnsupportedSpaceError: If no policy here can observe or act in a space; it names the agent and the
            space.
    """
    obs_dim = observation_layout(agent_id, observation_space).size
    shape = tuple(action_space.shape or ())
    match action_space:
        case gymnasium.spaces.Discrete(n=n, start=start):
            return AgentSpec(agent_id, obs_dim, int(n), "discrete", (int(n),), (), (int(start),))
        case gymnasium.spaces.MultiDiscrete(nvec=nvec, start=start):
            sizes = tuple(int(size) for size in np.ravel(nvec))
            starts = tuple(int(first) for first in np.ravel(start))
            return AgentSpec(agent_id, obs_dim, sum(sizes), "multi_discrete", sizes, shape, starts)
        case gymnasium.spaces.MultiBinary():
            count = math.prod(shape)
            return AgentSpec(
                agent_id, obs_dim, 2 * count, "multi_discrete", (2,) * count, shape, (0,) * count
            )
        case gymnasium.spaces.Box(dtype=dtype) if math.prod(shape) > 0 and np.issubdtype(dtype, np.floating):
            low = tuple(float(bound) for bound in np.ravel(action_space.low))
            high = tuple(float(bound) for bound in np.ravel(action_space.high))
            return AgentSpec(agent_id, obs_dim, len(low), "continuous", (), shape, (), len(low), low, high)
        case gymnasium.spaces.Dict(spaces=spaces):
            return _parameterized_spec(agent_id, observation_space, list(spaces.items()), action_space)
        case gymnasium.spaces.Tuple(spaces=spaces):
            return _parameterized_spec(agent_id, observation_space, list(enumerate(spaces)), action_space)
    raise _unsupported_action(agent_id, action_space)


def _parameterized_spec(
    agent_id: str,
    observation_space: gymnasium.Space[Any],
    spaces: list[tuple[Any, gymnasium.Space[Any]]],
    whole: gymnasium.Space[Any],
) -> AgentSpec:
    """Join the specifications of the parts: all discrete components first, then all continuous ones."""
    specs = [agent_spec(agent_id, observation_space, space) for _, space in spaces]
    kinds = {spec.action_kind for spec in specs}
    if "continuous" not in kinds or kinds == {"continuous"} or "parameterized" in kinds:
        raise _unsupported_action(agent_id, whole)
    parts = tuple(
        ActionPart(name, spec.action_kind, spec.action_shape, len(spec.action_nvec) + spec.continuous_dim)
        for (name, _), spec in zip(spaces, specs, strict=True)
    )
    return AgentSpec(
        agent_id=agent_id,
        obs_dim=specs[0].obs_dim,
        action_dim=sum(spec.action_dim for spec in specs),
        action_kind="parameterized",
        action_nvec=sum((spec.action_nvec for spec in specs), ()),
        action_shape=(),
        action_start=sum((spec.action_start for spec in specs), ()),
        continuous_dim=sum(spec.continuous_dim for spec in specs),
        action_low=sum((spec.action_low for spec in specs), ()),
        action_high=sum((spec.action_high for spec in specs), ()),
        action_parts=parts,
    )


def _unsupported_action(agent_id: str, space: gymnasium.Space[Any]) -> UnsupportedSpaceError:
    return UnsupportedSpaceError(
        f"Agent {agent_id!r} acts in {space}, which no policy here supports; supported: {SUPPORTED_ACTIONS}."
    )


@dataclass(frozen=True)
class ObservationLayout:
    """How an observation is laid out as one flat row, in Gymnasium's order; hashable, so it may be static.

    Attributes:
        kind: `box`, `discrete`, `multi_discrete`, `dict` or `tuple`.
        shape: Shape of one observation where it is an array.
        nvec: Categories of each discrete component.
        start: First legal value of each discrete component.
        parts: Name and layout of each part of a Dict or Tuple.
    """

    kind: str
    shape: tuple[int, ...] = ()
    nvec: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    parts: tuple[tuple[str, "ObservationLayout"], ...] = ()

    @property
    def size(self) -> int:
        """Length of the flattened observation."""
        if self.parts:
            return sum(part.size for _, part in self.parts)
        return sum(self.nvec) if self.nvec else math.prod(self.shape)

    def flatten(self, observation: Any) -> Array:  # noqa: ANN401 (any tree of arrays)
        """Flatten observations as `gymnasium.spaces.flatten` does, under `jit` and with leading batch axes.

        Args:
            observation: One observation, or a batch with any number of leading axes.

        Returns:
            `[..., size]` float32: arrays raveled row by row, discrete values one-hot, parts side by side.
        """
        if self.kind == "dict":
            return jnp.concatenate([part.flatten(observation[name]) for name, part in self.parts], axis=-1)
        if self.kind == "tuple":
            items = zip(self.parts, observation, strict=True)
            return jnp.concatenate([part.flatten(item) for (_, part), item in items], axis=-1)
        values = jnp.asarray(observation)
        batch = values.shape[: values.ndim - len(self.shape)]
        rows = values.reshape(*batch, math.prod(self.shape))
        if not self.nvec:
            return rows.astype(jnp.float32)
        pairs = zip(self.nvec, self.start, strict=True)
        columns = [jax.nn.one_hot(rows[..., i] - first, size) for i, (size, first) in enumerate(pairs)]
        return jnp.concatenate(columns, axis=-1).astype(jnp.float32)


def spec_to_json(spec: AgentSpec) -> dict[str, Any]:
    """Describe a specification as JSON holds it, which knows no infinity: such bounds become texts."""
    fields = dataclasses.asdict(spec)
    for name in ("action_low", "action_high"):
        fields[name] = [bound if math.isfinite(bound) else str(bound) for bound in fields[name]]
    return fields


def spec_from_json(fields: dict[str, Any]) -> AgentSpec:
    """Rebuild a specification from `spec_to_json` that went through JSON."""
    parts = tuple(
        ActionPart(**{name: _tuples(value) for name, value in part.items()})
        for part in fields["action_parts"]
    )
    values = {name: _tuples(value) for name, value in fields.items() if name != "action_parts"}
    for name in ("action_low", "action_high"):
        values[name] = tuple(float(bound) for bound in fields[name])
    return AgentSpec(**values, action_parts=parts)


def layout_from_json(fields: dict[str, Any]) -> ObservationLayout:
    """Rebuild a layout from `dataclasses.asdict` that went through JSON."""
    parts = tuple((name, layout_from_json(part)) for name, part in fields["parts"])
    return ObservationLayout(
        **{name: _tuples(value) for name, value in fields.items() if name != "parts"}, parts=parts
    )


def _tuples(value: Any) -> Any:  # noqa: ANN401 (JSON knows lists only)
    return tuple(value) if isinstance(value, list) else value


def observation_layout(agent_id: str, space: gymnasium.Space[Any]) -> ObservationLayout:
    """Read the layout of an agent's observations off their Gymnasium space.

    Raises:
        UnsupportedSpaceError: If the space, or a part of it, is not supported or holds nothing; it names the
            agent.
    """
    shape = tuple(space.shape or ())
    match space:
        case gymnasium.spaces.Discrete(n=n, start=start):
            return ObservationLayout("discrete", (), (int(n),), (int(start),))
        case gymnasium.spaces.MultiDiscrete(nvec=nvec, start=start):
            sizes = tuple(int(size) for size in np.ravel(nvec))
            return ObservationLayout(
                "multi_discrete", shape, sizes, tuple(int(first) for first in np.ravel(start))
            )
        case gymnasium.spaces.Dict(spaces=spaces) if spaces:
            parts = tuple((str(name), observation_layout(agent_id, part)) for name, part in spaces.items())
            return ObservationLayout("dict", parts=parts)
        case gymnasium.spaces.Tuple(spaces=spaces) if spaces:
            parts = tuple(
                (str(index), observation_layout(agent_id, part)) for index, part in enumerate(spaces)
            )
            return ObservationLayout("tuple", parts=parts)
        case gymnasium.spaces.Box() | gymnasium.spaces.MultiBinary() if math.prod(shape) > 0:
            return ObservationLayout("box", shape)
    raise UnsupportedSpaceError(
        f"Agent {agent_id!r} observes {space}, which no policy here supports; "
        f"supported: {SUPPORTED_OBSERVATIONS}."
    )
