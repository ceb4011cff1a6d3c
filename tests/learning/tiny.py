"""Tiny environments, networks and learners for the tests of the learning spine."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from dressage.envs import BaseEnv
from dressage.envs.spaces import Box, Discrete
from dressage.learning.grouped_env import SingleAgentEnv
from dressage.learning.groups import Group
from dressage.learning.policy_head import PolicyHead
from dressage.learning.proximal import Hyperparameters, ProximalLearner
from dressage.learning.specs import AgentSpec
from dressage.networks import Actor, ActorCritic, Critic

DISCRETE = AgentSpec("agent", 3, 4, "discrete", (4,), (), (0,))
CONTINUOUS = AgentSpec("agent", 3, 2, "continuous", (), (2,), (), 2, (-1.0, -1.0), (1.0, 1.0))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CycleState:
    phase: jax.Array  # int32


@dataclass(frozen=True)
class Cycle(BaseEnv):
    """Phases 0, 1, 2, 0, ... whatever is done; `rewards[phase]` is paid on leaving a phase.

    Observes the phase one-hot. Starts at phase 0, or at a random one. Ends after `max_steps` by the time
    limit; with `terminates`, leaving the last phase ends the episode for good.
    """

    rewards: tuple[float, ...] = (1.0, 1.0, 1.0)
    max_steps: int = 4
    random_start: bool = False
    terminates: bool = False

    def reset(self, rng):
        drawn = jax.random.randint(rng, (), 0, len(self.rewards))
        phase = drawn if self.random_start else jnp.zeros((), jnp.int32)
        return CycleState(phase), self._observe(phase), {}

    def step(self, state, action):
        reward = jnp.array(self.rewards)[state.phase]
        phase = (state.phase + 1) % len(self.rewards)
        return CycleState(phase), self._observe(phase), reward, self.terminates & (phase == 0), False, {}

    def observation_space(self, state):
        return Box(0.0, 1.0, (len(self.rewards),))

    def action_space(self, state):
        return Discrete(2)

    def _observe(self, phase):
        return jax.nn.one_hot(phase, len(self.rewards))


class GymnasiumCycle(gymnasium.Env):
    """The same on the host, starting at phase 0."""

    def __init__(self, rewards=(1.0, 1.0, 1.0), max_steps=4, terminates=False):
        self.rewards, self.max_steps, self.terminates = rewards, max_steps, terminates
        self.observation_space = gymnasium.spaces.Box(0.0, 1.0, (len(rewards),), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.phase = self.steps = 0
        return self._observe(), {}

    def step(self, action):
        reward = self.rewards[self.phase]
        self.phase = (self.phase + 1) % len(self.rewards)
        self.steps += 1
        terminated = self.terminates and self.phase == 0
        return self._observe(), reward, terminated, self.steps >= self.max_steps, {}

    def _observe(self):
        return np.eye(len(self.rewards), dtype=np.float32)[self.phase]


def hyperparameters(**changes: float) -> Hyperparameters:
    defaults = {
        "learning_rate": 3e-3,
        "gamma": 0.9,
        "gae_lambda": 0.8,
        "clip_eps": 0.2,
        "entropy_coef": 0.01,
        "value_coef": 0.5,
        "max_grad_norm": 0.5,
    }
    assert set(changes) <= set(defaults)
    return Hyperparameters(**jax.tree.map(jnp.float32, defaults | changes))


def network(
    spec: AgentSpec, hidden: tuple[int, ...] = (5,), state_independent_std: bool = True
) -> ActorCritic:
    # LeCun's initialisation: the QR factorisation of the orthogonal one takes a second to compile.
    layers = {"hidden_sizes": hidden, "kernel_init": "lecun_normal"}
    actor = Actor(spec.action_dim, spec.continuous_dim, state_independent_std, **layers)
    return ActorCritic(actor, Critic(**layers))


def learner(
    spec: AgentSpec,
    *,
    hyper: Hyperparameters | None = None,
    hidden: tuple[int, ...] = (5,),
    state_independent_std: bool = True,
    epochs: int = 2,
    minibatches: int = 3,
    total_optimizer_steps: int = 1000,
    **switches: bool,
) -> ProximalLearner:
    return ProximalLearner(
        hyper=hyperparameters() if hyper is None else hyper,
        head=PolicyHead(spec, squash=True),
        network=network(spec, hidden, state_independent_std),
        epochs=epochs,
        minibatches=minibatches,
        total_optimizer_steps=total_optimizer_steps,
        **switches,
    )


def single(env: BaseEnv, copies: int, *, fixed_init: bool = False) -> SingleAgentEnv:
    return SingleAgentEnv(env, copies, fixed_init=fixed_init, offset_step=False)


def group_of_one(one: ProximalLearner) -> tuple[Group, ...]:
    return (Group(one, ("agent",)),)


FIELDS = ("observed", "final_features", "rewards")


class Poison(struct.PyTreeNode):
    """Where a `PoisonedEnv` puts which value: an index into `FIELDS` (-1 for nowhere), a step and a copy."""

    field: jax.Array
    step: jax.Array
    copy: jax.Array
    value: jax.Array

    @classmethod
    def of(cls, field: int = -1, step: int = 0, copy: int = 0, value: float = np.nan) -> "Poison":
        return cls(jnp.int32(field), jnp.int32(step), jnp.int32(copy), jnp.float32(value))


class PoisonedEnv:
    """Copies of an environment, one of which gives a bad number once; what and when is part of the state."""

    def __init__(self, inner: SingleAgentEnv) -> None:
        self.inner, self.copies, self.spec = inner, inner.copies, inner.spec

    def reset(self, key: jax.Array) -> tuple[Any, Any]:
        state, observed = self.inner.reset(key)
        return (state, jnp.int32(0), Poison.of()), observed

    def step(self, state: Any, actions: Any) -> tuple[Any, Any]:
        inner, steps, poison = state
        inner, (outcome,) = self.inner.step(inner, actions)
        hit = (steps == poison.step) & (jnp.arange(self.copies) == poison.copy)
        spoil = partial(self._spoil, hit, poison)
        outcome = outcome.replace(
            observed=outcome.observed.replace(features=spoil(0, outcome.observed.features)),
            final_features=spoil(1, outcome.final_features),
            rewards=spoil(2, outcome.rewards),
        )
        return (inner, steps + 1, poison), (outcome,)

    def _spoil(self, hit: jax.Array, poison: Poison, field: int, values: jax.Array) -> jax.Array:
        here = hit & (poison.field == field)
        return jnp.where(here.reshape(-1, *(1,) * (values.ndim - 1)), poison.value, values)
