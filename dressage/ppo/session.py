"""A training session: environment copies, learner and evaluation put together from a configuration."""

from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array

from dressage.envs.checks import check_environment
from dressage.envs.functional import BaseEnv
from dressage.equations.action_scaling import check_bounds
from dressage.errors import ConfigError
from dressage.learning.evaluation import evaluate, evaluation_key
from dressage.learning.forward import critic_of
from dressage.learning.grouped_env import SingleAgentEnv
from dressage.learning.groups import Group
from dressage.learning.policy_head import PolicyHead
from dressage.learning.proximal import Hyperparameters, ProximalLearner
from dressage.learning.records import AgentState, Experience
from dressage.learning.specs import AGENT, AgentSpec
from dressage.networks import Actor, ActorCritic, Critic
from dressage.ppo.config import FLOATS, Config
from dressage.ppo.records import Transition


@dataclass(frozen=True)
class Session:
    """What stays the same throughout a run: environment copies and learner.

    Attributes:
        config: The checked configuration.
        env: The copies that train.
        eval_env: The copies that are evaluated, or None.
        groups: The one group of the one agent.
        learner: What trains it.
        max_steps: Longest episode.
    """

    config: Config
    env: SingleAgentEnv
    eval_env: SingleAgentEnv | None
    groups: tuple[Group, ...]
    learner: ProximalLearner
    max_steps: int

    @classmethod
    def of(cls, env: BaseEnv, config: Config) -> "Session":
        """Check environment and configuration and put the parts together.

        Raises:
            ConfigError: If the configuration is not legal, or the action bounds cannot be squashed into.
            UnsupportedSpaceError: If the agent's spaces are not supported.
            EnvironmentContractError: If the environment breaks its contract.
        """
        config = config.validate()
        check_environment(env)
        copies = SingleAgentEnv(
            env, config.NUM_ENVS, fixed_init=config.FIXED_INIT, offset_step=config.OFFSET_STEP
        )
        evaluated = config.NUM_EVAL_ENVS
        eval_env = SingleAgentEnv(env, evaluated, fixed_init=True, offset_step=False) if evaluated else None
        learner = proximal_learner(copies.spec, config)
        return cls(config, copies, eval_env, (Group(learner, (AGENT,)),), learner, env.max_steps)

    def evaluate(self, agents: tuple[AgentState, ...], key: Array) -> tuple[Experience, Array] | None:
        """Play one deterministic episode in every evaluation copy; nothing of training changes.

        Returns:
            `[T, E]` records and `alive [T, E]`, or None where nothing is evaluated.
        """
        if self.eval_env is None:
            return None
        rollouts, alive = evaluate(self.eval_env, self.groups, agents, evaluation_key(key), self.max_steps)
        return rollouts[0], alive

    def transitions(self, agents: tuple[AgentState, ...], rollout: Experience, alive: Array) -> Transition:
        """Present an evaluation's records as users' callbacks see them."""
        outcome, group, agent = rollout.outcome, self.groups[0], agents[0]
        features = self.learner.normalized(agent, rollout.observed.features)
        episode = {
            "returned_episode_returns": outcome.episode_returns,
            "returned_episode_lengths": outcome.episode_lengths,
        }
        return Transition(
            done=outcome.episode_ends & alive,
            action=rollout.actions,
            value=critic_of(self.learner.network, agent.params)(features),
            reward=outcome.rewards,
            log_prob=group.distribution(rollout.policy_outputs, rollout.observed).log_prob(rollout.actions),
            obs=rollout.observed.features,
            info={**outcome.info, **episode},
            alive=alive,
        )


def proximal_learner(spec: AgentSpec, config: Config) -> ProximalLearner:
    """Build the learner that a configuration describes.

    Raises:
        ConfigError: If actions are to be squashed into infinite or empty bounds.
    """
    if spec.action_kind == "continuous":
        check_bounds(np.array(spec.action_low), np.array(spec.action_high), config.SQUASH)
    hidden = (config.NUM_HIDDEN_UNITS,) * config.NUM_HIDDEN_LAYERS
    activation, kernel_init = config.HIDDEN_ACTIVATION, config.KERNEL_INIT_TYPE
    spread = config.STATE_INDEPENDENT_STD
    actor = Actor(spec.action_dim, spec.continuous_dim, spread, hidden, activation, kernel_init)
    return ProximalLearner(
        hyper=hyperparameters(config),
        head=PolicyHead(spec, config.SQUASH),
        network=ActorCritic(actor, Critic(hidden, activation, kernel_init)),
        epochs=config.UPDATE_EPOCHS,
        minibatches=config.NUM_MINIBATCHES,
        total_optimizer_steps=config.NUM_UPDATES * config.UPDATE_EPOCHS * config.NUM_MINIBATCHES,
        anneal=config.ANNEAL_LR,
        normalize_observations=config.NORMALIZE_ENV,
        normalize_rewards=config.NORMALIZE_ENV,
    )


def hyperparameters(config: Config) -> Hyperparameters:
    """Cast the configuration's floats once, so that Python numbers and arrays compile one program.

    Raises:
        ConfigError: If one of them is an array of several numbers.
    """
    for name in FLOATS:
        if jnp.ndim(getattr(config, name)):
            raise ConfigError(
                f"PPO option {name!r} must be a single number in `train`, got shape "
                f"{jnp.shape(getattr(config, name))}; vmap `train` over the configuration to sweep it."
            )
    fields = (
        config.LR,
        config.GAMMA,
        config.GAE_LAMBDA,
        config.CLIP_EPS,
        config.ENT_COEF,
        config.VF_COEF,
        config.MAX_GRAD_NORM,
    )
    return Hyperparameters(*(jnp.asarray(value, jnp.float32) for value in fields))
