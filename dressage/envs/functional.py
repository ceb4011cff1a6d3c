"""What a functional environment is: `BaseEnv`, `Environment` in parts, and what a vector of them returns."""

import abc
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import jax
import jax.numpy as jnp

from dressage.signals import Signals

PyTree: TypeAlias = Any
"""Any nesting of tuples, dicts and registered dataclasses of arrays."""
Number: TypeAlias = jax.Array | float
Flag: TypeAlias = jax.Array | bool
Info: TypeAlias = dict[str, Any]
Reset: TypeAlias = tuple[PyTree, PyTree, Info]
"""State, observation, info."""
Transition: TypeAlias = tuple[PyTree, PyTree, Number, Flag, Flag, Info]
"""State, observation, reward, terminated, truncated, info."""
AnySpace: TypeAlias = Any
"""A space of `dressage.envs.spaces` or of Gymnasium."""
Tree = TypeVar("Tree")

FINAL_OBSERVATION = "final_observation"
"""Key of `info` under which an environment that resets itself keeps what an action really led to."""


class Episodic(Protocol):
    """What starting episodes needs of an environment, of one agent or of many."""

    @property
    def resets_itself(self) -> bool:
        """Whether `step` already starts the next episode."""

    @property
    def redraws(self) -> bool:
        """Whether `redraw` changes something."""

    def reset(self, rng: jax.Array) -> tuple[PyTree, PyTree, Any]:
        """Start an episode; returns state, observation and info."""

    def redraw(self, state: PyTree, rng: jax.Array) -> PyTree:
        """Draw anew what differs between episodes although the initial state is kept."""


class BaseEnv(abc.ABC):
    """One environment as pure functions of an explicit state.

    The state is any pytree whose structure, shapes and dtypes never change. An environment neither counts
    its steps nor resets itself: `AutoReset` and `VectorEnv` do both, and keep the final observation.

    Attributes:
        max_steps: Longest episode in steps. `AutoReset`, `TimeLimit` and `VectorEnv` cut an episode there and
            report it as `truncated`, never as `terminated`.
        resets_itself: Whether `step` already starts the next episode and keeps the final observation in
            `info["final_observation"]`.
        redraws: Whether `redraw` changes something.
    """

    max_steps: int
    resets_itself: ClassVar[bool] = False
    redraws: ClassVar[bool] = False

    @abc.abstractmethod
    def reset(self, rng: jax.Array) -> Reset:
        """Start an episode.

        Args:
            rng: A JAX random key; the only source of chance.

        Returns:
            `(state, observation, info)`.
        """

    @abc.abstractmethod
    def step(self, state: PyTree, action: PyTree) -> Transition:
        """Make one step.

        Args:
            state: The state that `reset` or `step` returned.
            action: One action of `action_space(state)`.

        Returns:
            `(state, observation, reward, terminated, truncated, info)`: `reward` a float scalar, both flags
            boolean scalars. `terminated` means that nothing follows (the value beyond is zero); `truncated`
            that the episode was cut while it could have gone on.
        """

    @abc.abstractmethod
    def observation_space(self, state: PyTree) -> AnySpace:
        """Return the space of the observations."""

    @abc.abstractmethod
    def action_space(self, state: PyTree) -> AnySpace:
        """Return the space of the actions."""

    def redraw(self, state: PyTree, rng: jax.Array) -> PyTree:
        """Draw anew what differs between episodes although the initial state is kept; here nothing."""
        return state

    def signals(self) -> Signals | None:
        """Name the numbers of observation and action for an exported policy's card; None for no names."""
        return None

    def restart(self, state: PyTree) -> Reset:
        """Start the next episode from within; only environments that reset themselves know how.

        Raises:
            NotImplementedError: If the environment does not reset itself.
        """
        raise NotImplementedError(f"{type(self).__name__} does not reset itself; wrap it in AutoReset.")


class Environment(BaseEnv):
    """An environment written in parts; `reset` and `step` follow from them.

    Chance during an episode belongs into the state: keep a key there and split it in `transition`.
    """

    @abc.abstractmethod
    def initial_state(self, rng: jax.Array) -> PyTree:
        """Draw the state in which an episode starts."""

    @abc.abstractmethod
    def transition(self, state: PyTree, action: PyTree) -> PyTree:
        """Return the state that follows from an action."""

    @abc.abstractmethod
    def observation(self, state: PyTree) -> PyTree:
        """Return what the agent sees of a state."""

    @abc.abstractmethod
    def reward(self, state: PyTree, action: PyTree, next_state: PyTree) -> Number:
        """Return the reward of a transition, a float scalar."""

    def terminated(self, state: PyTree) -> Flag:
        """Whether nothing can follow this state; never, unless overridden."""
        return False

    def truncated(self, state: PyTree) -> Flag:
        """Whether the episode is cut here for another reason than `max_steps`; never, unless overridden."""
        return False

    def info(self, state: PyTree) -> Info:
        """Return what else is worth reporting of a state, with the same structure at every step."""
        return {}

    def reset(self, rng: jax.Array) -> Reset:
        """Start an episode; see `BaseEnv.reset`."""
        state = self.initial_state(rng)
        return state, self.observation(state), self.info(state)

    def step(self, state: PyTree, action: PyTree) -> Transition:
        """Make one step; see `BaseEnv.step`."""
        following = self.transition(state, action)
        reward = self.reward(state, action, following)
        flags = self.terminated(following), self.truncated(following)
        return following, self.observation(following), reward, *flags, self.info(following)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Step:
    """What one step of a vector environment gives; every array starts with the axis `[B]` of the copies.

    Attributes:
        observation: `[B, ...]` to act on next: the first of the new episode where one ended.
        final_observation: `[B, ...]` what the action really led to, before any reset; equal to `observation`
            where no episode ended.
        reward: `[B]` float32, of the action just taken.
        terminated: `[B]` bool, nothing follows.
        truncated: `[B]` bool, cut by the time limit or by the environment.
        info: Pytree of `[B, ...]` of the step itself, never of the episode that follows.
        episode_return: `[B]` float32, sum of rewards of the episode up to and including this step.
        episode_length: `[B]` int32, steps of the episode including this one.
    """

    observation: PyTree
    final_observation: PyTree
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    info: Info
    episode_return: jax.Array
    episode_length: jax.Array

    @property
    def ended(self) -> jax.Array:
        """`[B]` bool, whether the episode ended with this step for any reason."""
        return self.terminated | self.truncated


def select(condition: jax.Array, chosen: Tree, otherwise: Tree) -> Tree:
    """Choose between two pytrees by a condition over their leading axes.

    Args:
        condition: Bool `[...]`, the leading axes of every leaf.
        chosen: Pytree of `[..., *]`, taken where the condition holds.
        otherwise: Pytree of the same structure, taken elsewhere.

    Returns:
        A pytree of the same structure.
    """

    def pick(new: PyTree, old: PyTree) -> jax.Array:
        new = jnp.asarray(new)
        return jnp.where(condition.reshape(condition.shape + (1,) * (new.ndim - condition.ndim)), new, old)

    picked: Tree = jax.tree.map(pick, chosen, otherwise)
    return picked
