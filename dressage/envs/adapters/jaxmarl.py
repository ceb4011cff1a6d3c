"""JaxMARL environments as functional environments of many agents, without its automatic reset."""

import contextlib
import inspect
import io
import itertools
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dressage.config import check_names, suggest, whole_number
from dressage.envs.adapters.extras import import_extra
from dressage.envs.functional import Flag, PyTree
from dressage.envs.multi_agent import Actions, AgentsReset, AgentsTransition, MultiAgentEnv
from dressage.envs.spaces import Box, Discrete, MultiDiscrete, Space, size
from dressage.errors import ConfigError, EnvironmentContractError, UnsupportedSpaceError

PHYSICS = (
    "accel", "c_noise", "collide", "contact_force", "contact_margin", "damping", "mass", "max_speed",
    "moveable", "rad", "silent", "u_noise",
)  # fmt: skip
"""Options that JaxMARL's MPE reads although no constructor names them."""

EVERYONE = "__all__"
"""JaxMARL's key for the end of the episode among the agents' own ends."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class JaxMARLState:
    """State of an adapted JaxMARL environment.

    Attributes:
        inner: JaxMARL's own state.
        rng: Key of the episode.
        steps: int32, steps taken; numbers the keys of the steps.
        gone: Bool by agent, whether JaxMARL has called it done.
    """

    inner: PyTree
    rng: jax.Array
    steps: jax.Array
    gone: dict[str, jax.Array]


@dataclass(frozen=True, eq=False)
class JaxMARLEnv(MultiAgentEnv):
    """A JaxMARL environment behind our interface.

    `step_env` is called, so JaxMARL's automatic reset, which loses the final observation, never runs. An
    agent that JaxMARL calls done before `max_steps` is terminated; at `max_steps` everyone left is truncated,
    also where JaxMARL says done there, since it does not tell its time limit from an end. Its masks of
    available actions are not handed on.

    Attributes:
        env: The JaxMARL environment.
        max_steps: Time limit in steps.
    """

    env: Any
    max_steps: int

    @property
    def possible_agents(self) -> tuple[str, ...]:
        """JaxMARL's agents, in its order."""
        return tuple(self.env.agents)

    def reset(self, rng: jax.Array) -> AgentsReset:
        """Start an episode; see `MultiAgentEnv.reset`."""
        later, first = jax.random.split(rng)
        observations, inner = self.env.reset(first)
        gone = {agent: jnp.asarray(False) for agent in self.possible_agents}
        state = JaxMARLState(jax.tree.map(jnp.asarray, inner), later, jnp.zeros((), jnp.int32), gone)
        return state, self._observed(observations), {agent: {} for agent in self.possible_agents}

    def step(self, state: JaxMARLState, actions: Actions) -> AgentsTransition:
        """Make one step; see `MultiAgentEnv.step`."""
        agents = self.possible_agents
        # A folded-in count costs nothing where nothing is drawn; a key to split would have to be carried.
        key = jax.random.fold_in(state.rng, state.steps)
        given = {agent: actions[agent] for agent in agents}
        observations, inner, rewards, dones, told = self.env.step_env(key, state.inner, given)
        steps = state.steps + 1
        everyone = jnp.asarray(dones[EVERYONE], bool)
        done = {agent: jnp.asarray(dones[agent], bool) | everyone for agent in agents}
        over = steps >= self.max_steps
        following = JaxMARLState(
            inner, state.rng, steps, {agent: state.gone[agent] | done[agent] for agent in agents}
        )
        return (
            following,
            self._observed(observations),
            {agent: jnp.asarray(rewards[agent], jnp.float32).reshape(()) for agent in agents},
            {agent: done[agent] & ~over for agent in agents},
            {agent: done[agent] & over for agent in agents},
            self._infos(told),
        )

    def alive(self, state: JaxMARLState) -> dict[str, Flag]:
        """Whoever JaxMARL has not called done."""
        return {agent: ~state.gone[agent] for agent in self.possible_agents}

    def observation_space(self, state: JaxMARLState, agent: str) -> Space:
        """Return the space of an agent's observations."""
        return _space(self.env.observation_space(agent), f"the observation of {agent} in {self._name}")

    def action_space(self, state: JaxMARLState, agent: str) -> Space:
        """Return the space of an agent's actions."""
        return _space(self.env.action_space(agent), f"the action of {agent} in {self._name}")

    @property
    def _name(self) -> str:
        return f"jaxmarl:{self.env.name}"

    def _observed(self, observations: Mapping[str, PyTree]) -> dict[str, PyTree]:
        # JaxMARL's spaces say float32 of some observations that are integers.
        return {agent: self._cast(observations[agent], agent) for agent in self.possible_agents}

    def _cast(self, observation: Any, agent: str) -> jax.Array:  # noqa: ANN401
        space = _space(self.env.observation_space(agent), f"the observation of {agent} in {self._name}")
        values = jnp.asarray(observation, space.dtype)
        if values.size != size(space):
            raise EnvironmentContractError(
                f"{self._name} observes an array of shape {values.shape} for {agent}; "
                f"its space says {space.shape}."
            )
        return values.reshape(space.shape)

    def _infos(self, told: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """Take what is told by agent; what concerns the whole environment has no place here."""
        agents = self.possible_agents
        by_agent = {
            name: value
            for name, value in told.items()
            if isinstance(value, Mapping) and all(agent in value for agent in agents)
        }
        return {agent: {name: value[agent] for name, value in by_agent.items()} for agent in agents}


def from_jaxmarl(
    env: Any,  # noqa: ANN401
    options: Mapping[str, Any] | None = None,
    *,
    max_steps: int | None = None,
) -> JaxMARLEnv:
    """Return a JaxMARL environment as one of ours.

    Args:
        env: A name that JaxMARL registers, or a JaxMARL environment.
        options: The constructor's options of a named environment.
        max_steps: Time limit in steps; None for the environment's own `max_steps`.

    Returns:
        The environment.

    Raises:
        MissingExtraError: If JaxMARL is not installed.
        ConfigError: If the name or an option is unknown, or no time limit is given where JaxMARL has none.
    """
    jaxmarl = _import_jaxmarl()
    if isinstance(env, str):
        env = _named(jaxmarl, env, options or {})
    elif options:
        raise ConfigError("options of a JaxMARL environment that is made already cannot be given.")
    limit = getattr(env, "max_steps", None) if max_steps is None else max_steps
    number = whole_number(limit)
    if number is None or number < 1:
        raise ConfigError(f"jaxmarl:{env.name} needs max_steps as an integer >= 1, got {limit!r}.")
    return JaxMARLEnv(env, number)


def _import_jaxmarl() -> ModuleType:
    if sys.modules.get("jaxmarl"):
        return sys.modules["jaxmarl"]
    # While it is imported it prints, which would spoil output that others read, and puts Python's own
    # streams back in the place of whatever had taken it.
    sink, own = io.StringIO(), sys.__stdout__
    with contextlib.redirect_stdout(sink), contextlib.redirect_stderr(sys.stderr):
        sys.__stdout__ = sink  # type: ignore[assignment, misc]
        try:
            return import_extra("jaxmarl", "envs")
        finally:
            sys.__stdout__ = own  # type: ignore[misc]


def _named(jaxmarl: ModuleType, name: str, options: Mapping[str, Any]) -> Any:  # noqa: ANN401
    if name not in jaxmarl.registered_envs:
        raise ConfigError(f"jaxmarl has no environment {name!r}.{suggest(name, jaxmarl.registered_envs)}")
    try:
        env = jaxmarl.make(name, **options)
    except (AssertionError, TypeError, ValueError) as error:
        raise ConfigError(f"jaxmarl:{name} refuses the options {dict(options)}: {error}") from error
    # Most constructors take any keyword and ignore those that they do not know.
    parameters = [inspect.signature(base).parameters for base in type(env).__mro__[:-1]]
    check_names(options, [*itertools.chain(*parameters), *PHYSICS], f"jaxmarl:{name}")
    return env


def _space(space: Any, whose: str) -> Space:  # noqa: ANN401
    # By name, since JaxMARL's classes are known only once it is imported.
    kind = type(space).__name__
    if kind == "Box":
        return Box(np.asarray(space.low), np.asarray(space.high), space.shape, space.dtype)
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "MultiDiscrete":
        return MultiDiscrete(np.asarray(space.num_categories))
    raise UnsupportedSpaceError(
        f"The space {kind} of {whose} is not supported. Supported: Box, Discrete, MultiDiscrete."
    )
