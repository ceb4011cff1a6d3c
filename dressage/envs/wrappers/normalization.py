"""Running normalisation of observations and rewards, over all copies of a vector environment together."""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp

from dressage.envs.functional import BaseEnv, PyTree, Step
from dressage.envs.spaces import Box, Space
from dressage.envs.wrappers.vector import Vector
from dressage.equations.statistics import VARIANCE_FLOOR, RunningMoments
from dressage.errors import ConfigError, UnsupportedSpaceError


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class NormalizedState:
    """State of a normalising wrapper.

    Attributes:
        inner: State of the wrapped vector environment.
        moments: Statistics of what is normalised.
        returns: `[B]` discounted returns so far; None for observations.
    """

    inner: PyTree
    moments: RunningMoments
    returns: jax.Array | None = None


@dataclass(frozen=True)
class _OverCopies:
    """What both wrappers have of the vector environment that they wrap; a single one is refused."""

    env: Vector

    def __post_init__(self) -> None:
        if isinstance(self.env, BaseEnv):
            raise ConfigError(
                f"{type(self).__name__} keeps one set of statistics over all copies: wrap "
                f"{type(self.env).__name__} in VectorEnv."
            )

    @property
    def num_envs(self) -> int:
        """Number of copies `B`."""
        return self.env.num_envs

    @property
    def max_steps(self) -> int:
        """Longest episode in steps."""
        return self.env.max_steps

    @property
    def observation_space(self) -> Space:
        """Space of one copy's observations."""
        return self.env.observation_space

    @property
    def action_space(self) -> Space:
        """Space of one copy's actions."""
        return self.env.action_space


@dataclass(frozen=True)
class NormalizeObservations(_OverCopies):
    """Normalises observations by the mean and deviation of all observations acted on so far.

    Every observation that `reset` or `step` gives to act on is counted once; final observations are
    normalised alike but not counted.

    Attributes:
        env: A `VectorEnv`, or a wrapper of one, with `Box` observations.
        clip: Largest absolute value of a normalised observation, in deviations.
        update: False freezes the statistics, for evaluation.

    Raises:
        ConfigError: If `env` is a single environment.
        UnsupportedSpaceError: If the observation space is no `Box`.
    """

    clip: float = 10.0
    update: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.env.observation_space, Box):
            space = self.env.observation_space
            raise UnsupportedSpaceError(f"NormalizeObservations needs a Box to observe, got {space!r}.")

    @property
    def observation_space(self) -> Box:
        """`Box` within `±clip`."""
        return Box(-self.clip, self.clip, self.env.observation_space.shape)

    def reset(
        self, rng: jax.Array, moments: RunningMoments | None = None
    ) -> tuple[NormalizedState, jax.Array]:
        """Start an episode in every copy.

        Args:
            rng: A JAX random key.
            moments: Statistics to go on with; None starts from nothing.

        Returns:
            The state, and the normalised observations `[B, *shape]`.
        """
        inner, observation = self.env.reset(rng)
        state = NormalizedState(inner, moments or RunningMoments.zeros(self.env.observation_space.shape))
        state = self._learn(state, observation)
        return state, state.moments.normalize(observation, self.clip)

    def step(self, state: NormalizedState, action: PyTree) -> tuple[NormalizedState, Step]:
        """Make one step in every copy; see `VectorEnv.step`."""
        inner, step = self.env.step(state.inner, action)
        state = self._learn(replace(state, inner=inner), step.observation)
        return state, replace(
            step,
            observation=state.moments.normalize(step.observation, self.clip),
            final_observation=state.moments.normalize(step.final_observation, self.clip),
        )

    def _learn(self, state: NormalizedState, observation: jax.Array) -> NormalizedState:
        return replace(state, moments=state.moments.update(observation)) if self.update else state


@dataclass(frozen=True)
class NormalizeRewards(_OverCopies):
    r"""Divides rewards by the deviation of the running discounted return $G_t = \gamma G_{t-1} + r_t$.

    $G$ starts from 0 in each episode. Rewards keep their sign, since no mean is subtracted; `episode_return`
    stays in the environment's own unit.

    Attributes:
        env: A `VectorEnv`, or a wrapper of one.
        gamma: Discount in [0, 1].
        clip: Largest absolute value of a normalised reward.
        update: False freezes the statistics.

    Raises:
        ConfigError: If `env` is a single environment.

    Reference:
        Engstrom et al. 2020, "Implementation Matters in Deep RL", section 3, reward scaling. Departures: the
        return starts anew at each episode, and a deviation below 1e-4 counts as 1.
    """

    gamma: float = 0.99
    clip: float = 10.0
    update: bool = True

    def reset(self, rng: jax.Array, moments: RunningMoments | None = None) -> tuple[NormalizedState, PyTree]:
        """Start an episode in every copy; see `NormalizeObservations.reset`."""
        inner, observation = self.env.reset(rng)
        state = NormalizedState(inner, moments or RunningMoments.zeros(), jnp.zeros(self.num_envs))
        return state, observation

    def step(self, state: NormalizedState, action: PyTree) -> tuple[NormalizedState, Step]:
        """Make one step in every copy; see `VectorEnv.step`."""
        inner, step = self.env.step(state.inner, action)
        assert state.returns is not None, "made by this wrapper's reset"
        returns = self.gamma * state.returns + step.reward
        moments = state.moments.update(returns) if self.update else state.moments
        # All copies' first rewards may be equal; their deviation of 0 says nothing about the task's scale.
        scale = jnp.where(moments.var > VARIANCE_FLOOR, moments.std, 1.0)
        reward = jnp.clip(step.reward / scale, -self.clip, self.clip)
        following = NormalizedState(inner, moments, jnp.where(step.ended, 0.0, returns))
        return following, replace(step, reward=reward)
