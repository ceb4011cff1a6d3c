"""What training returns: the runner's state, the metrics, and the policy within."""

from functools import lru_cache
from typing import Any

from flax import struct
from flax.training.train_state import TrainState
from jax import Array

from dressage.equations.statistics import RunningMoments
from dressage.learning.flat_parameters import OPTIMIZER
from dressage.learning.forward import Network
from dressage.learning.policy_head import PolicyHead, SquashState
from dressage.learning.records import Fault, LearnerState
from dressage.learning.specs import AgentSpec, ObservationLayout
from dressage.ppo.config import Config
from dressage.ppo.policy import NormalizeVec, Policy
from dressage.ppo.records import Base

GraphState = Any
"""The type of an environment's state: any pytree."""


class RunnerState(Base):
    """The state of the runner after training.

    Attributes:
        train_state: Parameters and optimiser as a Flax `TrainState`. Its `tx` is Adam without a learning
            rate: the rate is data (it may be vmapped), and stands in `learning_rate`.
        env_state: The state of the environment copies.
        last_obs: `[B, obs_dim]` what the agent acts on next.
        rng: The random key of everything that would follow.
        learning_rate: `[]` the rate before annealing.
        observation_moments: Statistics of observations, or None.
        reward_moments: Statistics of discounted returns, or None.
        discounted_returns: `[B]` running discounted returns, or None.
        updates: `[]` int32, updates made.
        fault: The first non-finite number from the environment, if any.
    """

    train_state: TrainState
    env_state: GraphState
    last_obs: Array
    rng: Array
    learning_rate: Array | None = None
    observation_moments: RunningMoments | None = None
    reward_moments: RunningMoments | None = None
    discounted_returns: Array | None = None
    updates: Array | None = None
    fault: Fault | None = None

    @classmethod
    def of(cls, state: LearnerState, network: Network) -> "RunnerState":
        """Present the learner's state under the runner's names."""
        agent = state.agents[0]
        train_state = TrainState(
            step=agent.optimizer_steps,
            apply_fn=_apply_function(network),
            params=agent.params,
            tx=OPTIMIZER,
            opt_state=agent.opt_state,
        )
        return cls(
            train_state=train_state,
            env_state=state.environment,
            last_obs=state.observed[0].features,
            rng=state.key,
            learning_rate=agent.learning_rate,
            observation_moments=agent.observation_moments,
            reward_moments=agent.reward_moments,
            discounted_returns=agent.discounted_returns,
            updates=state.updates,
            fault=state.fault,
        )


class PPOResult(Base):
    """The result of training.

    Attributes:
        config: The configuration that ran, checked.
        runner_state: The state after the last update.
        metrics: Arrays by name, one row an evaluation.
        spec: The agent's spaces.
        layout: How its observations are flattened.
    """

    config: Config
    runner_state: RunnerState
    metrics: dict[str, Any]
    spec: AgentSpec | None = struct.field(pytree_node=False, default=None)
    layout: ObservationLayout | None = struct.field(pytree_node=False, default=None)

    @property
    def obs_scaling(self) -> NormalizeVec | None:
        """Frozen observation statistics, or None where `NORMALIZE_ENV` is off."""
        return NormalizeVec.of(self.runner_state.observation_moments)

    @property
    def act_scaling(self) -> SquashState | None:
        """How actions of one environment are scaled (no batch axis), or None where they are discrete."""
        return None if self.spec is None else PolicyHead(self.spec, self.config.SQUASH).scaling()

    @property
    def policy(self) -> Policy:
        """The deployable policy.

        Raises:
            ValueError: If the result was put together by hand without `spec`.
        """
        if self.spec is None:
            raise ValueError("This result does not say what the agent's spaces are: give PPOResult a `spec`.")
        params = self.runner_state.train_state.params["params"]
        return build_policy(self.config, self.spec, self.layout, params, self.obs_scaling)


def build_policy(
    config: Config,
    spec: AgentSpec,
    layout: ObservationLayout | None,
    params: dict[str, Any],
    obs_scaling: NormalizeVec | None,
) -> Policy:
    """Put a policy together from parameters and statistics."""
    return Policy(
        act_scaling=PolicyHead(spec, config.SQUASH).scaling(),
        obs_scaling=obs_scaling,
        model=params,
        hidden_activation=config.HIDDEN_ACTIVATION,
        output_activation="gaussian" if spec.continuous_dim else "categorical",
        state_independent_std=config.STATE_INDEPENDENT_STD,
        spec=spec,
        layout=layout,
    )


@lru_cache
def _apply_function(network: Network) -> Any:  # noqa: ANN401
    """One bound method a network: equal TrainStates need the identical function."""
    return network.apply
