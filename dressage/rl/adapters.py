"""Trained policies of single agents, ready to act in their environment."""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from dressage.equations.statistics import RunningMoments
from dressage.errors import CheckpointError, ConfigError
from dressage.learning.forward import Network, critic_inputs, critic_of, start_memory, step_policy
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.policy_graph import Deployment
from dressage.learning.policy_head import Distribution, PolicyHead
from dressage.learning.proximal import OBSERVATION_CLIP
from dressage.learning.records import AgentState, Observed
from dressage.learning.specs import AgentSpec
from dressage.rl.deployment import TrainedAgent, agent_from_tensors


@dataclasses.dataclass
class PolicyAdapter:
    """A trained policy of one agent that acts in its environment.

    A recurrent policy remembers what it has acted on: call `reset` at the start of each episode.

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
        step_fn: Maps `(params, obs, memory)` to memory and outputs, for a recurrent policy; memory None
            stands for an episode's start.
        memory: What a recurrent policy remembers; None at an episode's start.
        network: The actor-critic behind `apply_fn`, which export needs to know; None where it is not known.
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
    step_fn: Callable[..., Any] | None = None
    memory: Any = None
    network: Network | None = None

    def reset(self) -> None:
        """Forget: the next observation is the first of an episode."""
        self.memory = None

    def act(
        self,
        obs: Any,  # noqa: ANN401
        *,
        rng: Any = None,  # noqa: ANN401
        deterministic: bool | None = None,
        action_mask: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Choose an action that the environment takes.

        Args:
            obs: The environment's own observation, or the flat vector `[obs_dim]`; leading axes make a batch.
                An action mask in it is obeyed.
            rng: A JAX random key; None means the most likely action.
            deterministic: True takes the most likely action whatever `rng` is; False needs `rng`.
            action_mask: The legal choices where they stand in the environment's infos, `[..., sum(nvec)]`.

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
        observed = self._observed(obs)
        if action_mask is not None:
            observed = observed.replace(action_mask=jnp.asarray(action_mask) != 0)
        if self.step_fn is None:
            outputs = self._outputs(observed.features)
        else:
            self.memory, outputs = self.step_fn(self.params, observed.features, self.memory)
        distribution = self._head().distribution(outputs, observed.action_mask)
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
            ValueError: If the adapter has no critic, or was exported without.
        """
        if self.value_fn is None:
            raise ValueError(f"The policy of agent {self.agent_id!r} carries no critic.")
        if self.network is not None and "critic" not in self.params["network"]["params"]:
            raise ValueError(
                f"The policy of agent {self.agent_id!r} has no critic: it was exported without. Export it "
                "with critic=True (--critic)."
            )
        return jnp.asarray(self.value_fn(self.params, self._observed(obs).features))

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
        distribution: Any = self._distribution(obs)
        parts = (distribution.probs,) if self.action_kind == "discrete" else distribution.component_probs()
        return tuple(np.asarray(part) for part in parts)

    def deployment(self) -> Deployment:
        """Return what the policy's files are made of; see `dressage.export.export_policy`.

        Raises:
            ConfigError: If network or spaces are not known.
        """
        spaces = self._spaces()
        if spaces is None or self.network is None:
            raise ConfigError(
                f"The policy of agent {self.agent_id!r} cannot be exported: its network and spaces are not "
                "known, only how to call it. Policies that the learners return can be."
            )
        kind, step = type(self).__name__, _step_function(self.network)
        trained = TrainedAgent(
            kind, self.agent_id, self.network, self.params, spaces, squash=self.squash, step=step
        )
        return trained.deployment()

    def _distribution(self, obs: Any) -> Distribution:  # noqa: ANN401
        """The distribution at an observation, given what the policy remembers; memory stays as it is."""
        observed = self._observed(obs)
        if self.step_fn is None:
            outputs = self._outputs(observed.features)
        else:
            _, outputs = self.step_fn(self.params, observed.features, self.memory)
        return self._head().distribution(outputs, observed.action_mask)

    def _outputs(self, features: Array) -> tuple[Array, Array | None]:
        outputs = self.apply_fn(self.params, features)
        if isinstance(outputs, tuple):
            return outputs[0], outputs[1] if len(outputs) > 1 else None
        return outputs, None

    def _observed(self, obs: Any) -> Observed:  # noqa: ANN401
        spaces = self._spaces()
        tree = isinstance(obs, dict | tuple)
        if spaces is not None:
            layout = spaces.layout
            rank = len(layout.shape)
            in_own_shape = not tree and np.shape(obs)[max(0, np.ndim(obs) - rank) :] == layout.shape
            categories = bool(layout.nvec) and not tree and np.issubdtype(np.asarray(obs).dtype, np.integer)
            if tree:
                return spaces.observe(obs)
            if categories or (in_own_shape and (rank > 0 or np.ndim(obs) == 0) and not layout.parts):
                return Observed(layout.flatten(obs))
        if tree or np.shape(obs)[-1:] != (self.obs_dim,):
            raise ValueError(
                f"The policy of agent {self.agent_id!r} takes observations of length {self.obs_dim}, "
                f"got {'a tree' if tree else f'shape {np.shape(obs)}'}."
            )
        return Observed(jnp.asarray(obs, jnp.float32))

    def _head(self) -> PolicyHead:
        return PolicyHead(self._spec(), self.squash)

    def _spaces(self) -> GroupSpaces | None:
        if self.action_space is None or self.observation_space is None:
            return None
        return _spaces_of(self.agent_id, _ByIdentity(self.observation_space), _ByIdentity(self.action_space))

    def _spec(self) -> AgentSpec:
        """The specification; bounds and parts come from the spaces, without which actions stay unbounded."""
        spaces = self._spaces()
        if spaces is not None:
            return spaces.spec
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


@dataclasses.dataclass
class ParameterizedPolicyAdapter(PolicyAdapter):
    """Inference adapter that preserves the complete learned augmented action.

    `act` returns the discrete components and the raw Gaussian parameters together, in the structure of the
    environment's action space; bounding the parameters is for the shield or the environment.
    """

    def parameters(self, obs: Any) -> tuple[Array, Array]:  # noqa: ANN401
        """Return mean and standard deviation of the raw parameters, `[..., continuous_dim]` each.

        Raises:
            ValueError: If the policy has no continuous part.
        """
        if self.continuous_dim == 0:
            raise ValueError(f"The policy of agent {self.agent_id!r} has no continuous part.")
        distribution: Any = self._distribution(obs)
        gaussian = distribution.continuous if self.action_nvec else distribution
        return gaussian.mean, jnp.exp(gaussian.log_std)


def trained_adapter(
    kind: type[PolicyAdapter], agent: str, spaces: GroupSpaces, network: Network, state: AgentState
) -> PolicyAdapter:
    """Return the policy of one agent of a group.

    Args:
        kind: `PolicyAdapter` or a class derived from it.
        agent: The agent's name.
        spaces: Its group's spaces.
        network: The actor-critic.
        state: The agent's state; parameters and statistics are copied, since training reuses its memory.
    """
    moments = state.observation_moments
    params = {"network": state.params, "moments": moments}
    return kind(
        agent_id=agent,
        params=jax.tree.map(lambda leaf: jnp.array(leaf, copy=True), params),
        apply_fn=_policy_function(network),
        obs_dim=spaces.spec.obs_dim,
        action_kind=spaces.spec.action_kind,
        action_nvec=spaces.spec.action_nvec,
        action_shape=spaces.spec.action_shape,
        action_start=spaces.spec.action_start,
        continuous_dim=spaces.spec.continuous_dim,
        value_fn=_value_function(network),
        observation_space=spaces.observation_space,
        action_space=spaces.action_space,
        step_fn=None if start_memory(network, ()) is None else _step_function(network),
        network=network,
    )


def acting_state(params: Any, moments: RunningMoments | Mapping[str, Any] | None) -> AgentState:  # noqa: ANN401
    """Return what acting needs of an agent's state; all else is empty.

    Args:
        params: The network's parameters.
        moments: Statistics of observations, also as the mapping of arrays that files hold; None for none.
    """
    if isinstance(moments, Mapping):
        moments = RunningMoments(**moments)
    return AgentState(
        params=params,
        opt_state=(),
        learning_rate=jnp.zeros(()),
        optimizer_steps=jnp.int32(0),
        observation_moments=moments,
    )


def load_adapter(description: Mapping[str, Any], tensors: Mapping[str, np.ndarray]) -> PolicyAdapter:
    """Rebuild the adapter that `PolicyAdapter.deployment` described.

    Raises:
        CheckpointError: If it is of a class that this version does not know.
    """
    kinds = {kind.__name__: kind for kind in (PolicyAdapter, ParameterizedPolicyAdapter)}
    if description["class"] not in kinds:
        raise CheckpointError(
            f"The policy is a {description['class']}, which this version of dressage does not know."
        )
    spaces, network, params, moments = agent_from_tensors(description, tensors)
    state = acting_state(params, moments)
    adapter = trained_adapter(kinds[description["class"]], description["agent"], spaces, network, state)
    return dataclasses.replace(adapter, squash=description["squash"])


@lru_cache
def _policy_function(network: Network) -> Callable[..., Any]:
    return jax.jit(partial(_policy, network))


@lru_cache
def _value_function(network: Network) -> Callable[..., Any]:
    return jax.jit(partial(_value, network))


@lru_cache
def _step_function(network: Network) -> Callable[..., Any]:
    return jax.jit(partial(_step, network))


def _policy(network: Network, params: dict[str, Any], obs: Array) -> Any:  # noqa: ANN401
    """Head outputs of raw observations; those of a recurrent network at an episode's start."""
    return _step(network, params, obs, None)[1]


def _step(network: Network, params: dict[str, Any], obs: Array, memory: Any) -> tuple[Any, Any]:  # noqa: ANN401
    if memory is None:
        memory = start_memory(network, obs.shape[:-1])
    return step_policy(network, params["network"], _normalized(params["moments"], obs), memory)


def _value(network: Network, params: dict[str, Any], obs: Array) -> Array:
    inputs = critic_inputs(_normalized(params["moments"], obs), start_memory(network, obs.shape[:-1]))
    return critic_of(network, params["network"])(inputs)


def _normalized(moments: RunningMoments | None, obs: Array) -> Array:
    return obs if moments is None else moments.normalize(obs, OBSERVATION_CLIP)


class _ByIdentity:
    """Makes a space, which has no hash, a key of a cache."""

    def __init__(self, space: gymnasium.Space[Any]) -> None:
        self.space = space

    def __hash__(self) -> int:
        return id(self.space)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByIdentity) and other.space is self.space


@lru_cache(maxsize=256)
def _spaces_of(agent: str, observation: _ByIdentity, action: _ByIdentity) -> GroupSpaces:
    return GroupSpaces.of((agent,), observation.space, action.space)


def _cast(action: Any, space: gymnasium.Space[Any]) -> Any:  # noqa: ANN401
    """Give an action the dtype of its space, part by part, so that `space.contains` accepts it."""
    if isinstance(space, gymnasium.spaces.Dict):
        return {name: _cast(action[name], part) for name, part in space.spaces.items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple(_cast(item, part) for item, part in zip(action, space.spaces, strict=True))
    array = np.asarray(action).astype(space.dtype)
    return array[()] if isinstance(space, gymnasium.spaces.Discrete) else array
