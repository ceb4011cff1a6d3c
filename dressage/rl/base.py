"""What all multi-agent learners share: specifications, results, cost tracking and acting policies."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dressage.config import merge_configs
from dressage.equations.returns import compute_gae, normalize_advantages
from dressage.equations.schedules import num_optimizer_steps_for_timesteps
from dressage.learning.cost_tracking import RunningEpisode, track_step
from dressage.learning.policy_head import Distribution, PolicyHead
from dressage.learning.specs import AgentSpec, agent_spec, observation_layout

__all__ = [
    "AgentSpec",
    "EpisodicCostTracker",
    "PolicyAdapter",
    "TrainResult",
    "compute_gae",
    "infer_agent_specs",
    "merge_configs",
    "normalize_advantages",
    "num_optimizer_steps_for_timesteps",
]

ACTION_MASK = "action_mask"


@dataclasses.dataclass
class TrainResult:
    """What training returns.

    Attributes:
        history: One dictionary per finished episode: `episode`, `env_index`, `start_step`, `end_step`,
            `length`, `agent_returns`, `agent_costs`, `terminated`, `truncated`.
        metrics: For each agent one dictionary of floats per update.
        policies: For each agent a policy that acts.
        agent_states: For each agent all that is needed to go on training, a pytree.
    """

    history: list[Any]
    metrics: dict[str, list[dict[str, float]]]
    policies: dict[str, "PolicyAdapter"]
    agent_states: dict[str, Any]


@dataclasses.dataclass
class EpisodicCostTracker:
    """Track returns from true episode starts, across rollout boundaries, of one stream of step costs.

    Attributes:
        gamma: Discount a step, in [0, 1].
        initial_return: The estimate while no episode has finished.
        running_return: Discounted cost of the open episode since its true start.
        running_mass: Sum of the weights of the open episode so far.
        discount: Weight of the next cost, a power of `gamma`.
        last_return: Mean return of the episodes finished in the latest rollout that finished any; None
            before.
        last_scale: One over the mean mass of the same episodes: what turns a return into a mean a step.
    """

    gamma: float = 1.0
    initial_return: float = 0.0
    running_return: float = 0.0
    running_mass: float = 0.0
    discount: float = 1.0
    last_return: float | None = None
    last_scale: float = 1.0

    @property
    def estimate(self) -> float:
        """The latest mean return, or `initial_return` while no episode has finished."""
        return self.initial_return if self.last_return is None else self.last_return

    def update(self, costs: Any, episode_ends: Any) -> int:  # noqa: ANN401 (any array of numbers)
        """Add a rollout.

        Args:
            costs: `[T]` costs.
            episode_ends: `[T]` true where an episode ended for any reason, truncation included.

        Returns:
            The number of episodes that the rollout finished.

        Raises:
            ValueError: If the shapes differ or a cost is not finite; nothing is changed then.
        """
        costs, ends = np.asarray(costs, np.float64), np.asarray(episode_ends).astype(bool)
        if costs.ndim != 1 or costs.shape != ends.shape:
            raise ValueError(
                f"costs and episode_ends must be of one shape [T], got {costs.shape} and {ends.shape}."
            )
        if not np.isfinite(costs).all():
            step = int(np.argmin(np.isfinite(costs)))
            raise ValueError(f"The cost of step {step} of the rollout is {costs[step]}, which is not finite.")
        episode = RunningEpisode(self.running_return, self.running_mass, self.discount)
        finished: list[tuple[float, float]] = []
        for cost, ended in zip(costs, ends, strict=True):
            episode, total, mass = track_step(episode, cost, ended, self.gamma, np)
            if ended:
                finished.append((float(total), float(mass)))
        self.running_return, self.running_mass, self.discount = (float(value) for value in episode)
        if finished:
            returns, masses = zip(*finished, strict=True)
            self.last_return = float(np.mean(returns))
            self.last_scale = float(1.0 / np.mean(masses))
        return len(finished)


@dataclasses.dataclass
class PolicyAdapter:
    """A trained policy of one agent that acts in its environment.

    Attributes:
        agent_id: The agent's name.
        params: Parameters, as `apply_fn` takes them.
        apply_fn: Maps `(params, obs[..., obs_dim])` to head outputs `[..., action_dim]`, or to a tuple of
            them and the log standard deviations `[..., continuous_dim]`.
        obs_dim: Length of the flattened observation.
        action_kind: As in `AgentSpec`.
        action_nvec: Categories of each discrete component.
        action_shape: Shape of the environment's action.
        action_start: First legal value of each discrete component.
        continuous_dim: Number of continuous dimensions.
        value_fn: Maps `(params, obs[..., obs_dim])` to values `[...]`, or None.
        observation_space: The agent's own, to flatten observations by.
        action_space: The agent's own, to give actions bounds, parts and dtype by.
        squash: Whether continuous actions are squashed by tanh; otherwise they are clipped.
    """

    agent_id: str
    params: Any
    apply_fn: Callable[..., Any]
    obs_dim: int
    action_kind: str = "discrete"
    action_nvec: tuple[int, ...] = ()
    action_shape: tuple[int, ...] = ()
    action_start: tuple[int, ...] = ()
    continuous_dim: int = 0
    value_fn: Callable[..., Any] | None = None
    observation_space: gymnasium.Space[Any] | None = None
    action_space: gymnasium.Space[Any] | None = None
    squash: bool = False

    def act(self, obs: Any, *, rng: Any = None, deterministic: bool | None = None) -> Any:  # noqa: ANN401
        """Choose an action that the environment takes.

        Args:
            obs: The environment's own observation, or the flat vector `[obs_dim]`; leading axes make a batch.
            rng: A JAX random key; None means the most likely action.
            deterministic: True takes the most likely action whatever `rng` is; False needs `rng`.

        Returns:
            An action of the environment's shape and dtype, start offsets added.

        Raises:
            ValueError: If the observation has another length, or a sample is asked for without `rng`.
        """
        most_likely = rng is None if deterministic is None else deterministic
        if not most_likely and rng is None:
            raise ValueError(
                f"Agent {self.agent_id!r}: act(deterministic=False) needs rng, a JAX random key."
            )
        distribution = self._distribution(obs)
        action = distribution.mode() if most_likely else distribution.sample(rng)
        taken = self._head().environment_action(action)
        return (
            jax.tree.map(np.asarray, taken) if self.action_space is None else _cast(taken, self.action_space)
        )

    def log_prob(self, obs: Any, action: Any) -> Array:  # noqa: ANN401
        """Return the log-probability `[...]` of policy actions: indices from 0, raw numbers, or both."""
        return self._distribution(obs).log_prob(action)

    def value(self, obs: Any) -> Array:  # noqa: ANN401
        """Return the critic's estimate `[...]` of the discounted return that follows an observation.

        Raises:
            ValueError: If the adapter has no critic.
        """
        if self.value_fn is None:
            raise ValueError(f"The policy of agent {self.agent_id!r} carries no critic.")
        return jnp.asarray(self.value_fn(self.params, self._features(obs)))

    def component_action_probs(self, obs: Any) -> tuple[np.ndarray, ...]:  # noqa: ANN401
        """Return one categorical distribution per discrete action component.

        Args:
            obs: One observation or a batch with leading axes.

        Returns:
            For each component `[..., n_i]`, rows summing to 1.

        Raises:
            ValueError: If the policy has no discrete component.
        """
        if not self.action_nvec:
            raise ValueError(
                f"The policy of agent {self.agent_id!r} is {self.action_kind}: it has no discrete component "
                "whose probabilities could be given."
            )
        logits, _ = self._outputs(obs)
        cuts = np.cumsum(self.action_nvec)[:-1]
        parts = np.split(np.asarray(logits)[..., : sum(self.action_nvec)], cuts, axis=-1)
        return tuple(np.asarray(jax.nn.softmax(part)) for part in parts)

    def _distribution(self, obs: Any) -> Distribution:  # noqa: ANN401
        return self._head().distribution(self._outputs(obs))

    def _outputs(self, obs: Any) -> tuple[Array, Array | None]:  # noqa: ANN401
        outputs = self.apply_fn(self.params, self._features(obs))
        if isinstance(outputs, tuple):
            return outputs[0], outputs[1] if len(outputs) > 1 else None
        return outputs, None

    def _features(self, obs: Any) -> Array:  # noqa: ANN401
        tree = isinstance(obs, dict | tuple)
        if self.observation_space is not None:
            layout = observation_layout(self.agent_id, self.observation_space)
            rank = len(layout.shape)
            in_own_shape = not tree and np.shape(obs)[max(0, np.ndim(obs) - rank) :] == layout.shape
            categories = bool(layout.nvec) and not tree and np.issubdtype(np.asarray(obs).dtype, np.integer)
            if tree or categories or (in_own_shape and (rank > 0 or np.ndim(obs) == 0)):
                return layout.flatten(obs)
        if tree or np.shape(obs)[-1:] != (self.obs_dim,):
            raise ValueError(
                f"The policy of agent {self.agent_id!r} takes observations of length {self.obs_dim}, "
                f"got {'a tree' if tree else f'shape {np.shape(obs)}'}."
            )
        return jnp.asarray(obs, jnp.float32)

    def _head(self) -> PolicyHead:
        return PolicyHead(self._spec(), self.squash)

    def _spec(self) -> AgentSpec:
        """The specification; bounds and parts come from the spaces, without which actions stay unbounded."""
        if self.action_space is not None and self.observation_space is not None:
            return agent_spec(self.agent_id, self.observation_space, self.action_space)
        return AgentSpec(
            agent_id=self.agent_id,
            obs_dim=self.obs_dim,
            action_dim=sum(self.action_nvec) + self.continuous_dim,
            action_kind=self.action_kind,
            action_nvec=self.action_nvec,
            action_shape=self.action_shape,
            action_start=self.action_start,
            continuous_dim=self.continuous_dim,
            action_low=(-math.inf,) * self.continuous_dim,
            action_high=(math.inf,) * self.continuous_dim,
        )


def infer_agent_specs(env: Any) -> list[AgentSpec]:  # noqa: ANN401 (any PettingZoo ParallelEnv)
    """Describe every possible agent of a `ParallelEnv`, in the order of `possible_agents`.

    Works before `reset`. Where an observation is a Dict with `action_mask`, `obs_dim` counts the rest.

    Raises:
        ValueError: If the environment has no `possible_agents`, or none in it.
        UnsupportedSpaceError: If an agent's space is not supported.
    """
    agents = list(getattr(env, "possible_agents", None) or ())
    if not agents:
        raise ValueError(
            f"{type(env).__name__} has no possible_agents: give it the list of all agents that may ever act."
        )
    return [
        agent_spec(agent, without_mask(env.observation_space(agent)), env.action_space(agent))
        for agent in agents
    ]


def without_mask(space: gymnasium.Space[Any]) -> gymnasium.Space[Any]:
    """Return an observation space less its action mask; a Dict with one other part becomes that part."""
    if not isinstance(space, gymnasium.spaces.Dict) or ACTION_MASK not in space.spaces:
        return space
    rest = {name: part for name, part in space.spaces.items() if name != ACTION_MASK}
    return next(iter(rest.values())) if len(rest) == 1 else gymnasium.spaces.Dict(rest)


def _cast(action: Any, space: gymnasium.Space[Any]) -> Any:  # noqa: ANN401
    """Give an action the dtype of its space, part by part, so that `space.contains` accepts it."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: _cast(action[name], part) for name, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_cast(item, part) for item, part in zip(action, space.spaces, strict=True))
    array = np.asarray(action).astype(space.dtype)
    return array[()] if isinstance(space, gymnasium.spaces.Discrete) else array
