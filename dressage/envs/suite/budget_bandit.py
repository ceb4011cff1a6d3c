"""The smallest constrained task: what is taken is reward and cost alike, so the limit is the optimum."""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from dressage.config import Option
from dressage.envs.cmdp import FiniteCMDP, Table
from dressage.envs.functional import BaseEnv, Reset, Transition
from dressage.envs.spaces import Box, Discrete

HORIZON_OPTION = Option("max_steps", 10, "integer", minimum=1, unit="steps", help="Steps of an episode.")

OPTIONS: tuple[Option, ...] = (HORIZON_OPTION,)


@dataclass(frozen=True)
class BudgetBandit(BaseEnv):
    """At each of `max_steps` steps take 1 or nothing; reward and `info["cost"]` are both what was taken.

    The agent sees which step it is. After the last step the episode terminates. With a limit `d` on the mean
    cost of an episode, the best mean return is `d`, and the multiplier at the optimum is 1.

    Attributes:
        max_steps: Steps of an episode, all of which are played.
    """

    max_steps: int = 10

    def reset(self, rng: jax.Array) -> Reset:
        """Start at step 0."""
        state = jnp.zeros((), jnp.int32)
        return state, observe_step(state, self.max_steps), {"cost": jnp.zeros(())}

    def step(self, state: jax.Array, action: jax.Array) -> Transition:
        """Take 1 (action 1) or nothing (0); see `BaseEnv.step`."""
        taken = jnp.asarray(action).astype(jnp.float32)
        state = state + 1
        observation = observe_step(state, self.max_steps)
        return state, observation, taken, state >= self.max_steps, False, {"cost": taken}

    def observation_space(self, state: jax.Array) -> Box:
        """One-hot step, float32 `[max_steps]`; all zeros after the last."""
        return Box(0.0, 1.0, (self.max_steps,))

    def action_space(self, state: jax.Array) -> Discrete:
        """0 takes nothing, 1 takes 1."""
        return Discrete(2)

    def model(self) -> FiniteCMDP:
        """Return the process over the steps."""
        taken = np.array([0.0, 1.0])
        return budget_process(self.max_steps, rewards=taken, costs=taken)


def budget_process(horizon: int, rewards: Table, costs: Table) -> FiniteCMDP:
    """Return the process of an episode of a fixed number of steps whose payments depend on the action alone.

    Args:
        horizon: Steps of an episode, which are the states.
        rewards: `[A]` of each action.
        costs: `[A]` of each action.
    """
    following = np.eye(horizon, k=1)  # nothing follows the last step
    return FiniteCMDP(
        transitions=np.repeat(following[:, None], len(rewards), axis=1),
        rewards=np.tile(rewards, (horizon, 1)),
        costs=np.tile(costs, (horizon, 1)),
        initial=np.eye(horizon)[0],
    )


def observe_step(step: jax.Array, horizon: int) -> jax.Array:
    """Return which step comes next, one-hot.

    Args:
        step: int32, from 0; `horizon` after the last step.
        horizon: Steps of an episode.

    Returns:
        float32 `[horizon]`, all zeros after the last step.
    """
    return jax.nn.one_hot(step, horizon)
