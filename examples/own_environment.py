"""A boat crosses a river: an environment of your own, wrapped, stepped many times over, and checked."""

# Brief on purpose: what each part returns stands on the page that shows it.
# ruff: noqa: ANN001, ANN201, D102

# --8<-- [start:environment]
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from dressage.envs import Environment, VectorEnv, check_environment
from dressage.envs.spaces import Box
from dressage.envs.wrappers import RandomizeParameters


@dataclass(frozen=True)
class Ferry(Environment):
    """Steer a boat across a river of width 1 so that it lands where it set off."""

    current: float = 0.3  # downstream, as a share of the boat's own speed
    max_steps: int = 40

    def initial_state(self, rng):
        return jax.random.uniform(rng, (2,), maxval=0.05)

    def transition(self, state, action):
        steering = jnp.clip(action[0], -1.0, 1.0)  # upstream, as a share of the boat's own speed
        return state + 0.1 * jnp.array([1.0, steering - self.current])

    def observation(self, state):
        return state  # how far across, how far upstream

    def reward(self, state, action, next_state):
        return -jnp.abs(next_state[1]) - 0.01 * jnp.sum(action**2)

    def terminated(self, state):
        return state[0] >= 1.0  # the other bank: nothing follows

    def observation_space(self, state):
        return Box(-jnp.inf, jnp.inf, (2,))

    def action_space(self, state):
        return Box(-1.0, 1.0, (1,))


# --8<-- [end:environment]


def make(current: float = 0.3) -> Ferry:
    """Make the task: `dressage train python:examples.own_environment:make`."""
    return Ferry(current=current)


if __name__ == "__main__":
    # --8<-- [start:use]
    check_environment(Ferry())  # shapes, dtypes and spaces, without running anything

    env = RandomizeParameters(Ferry(), {"current": (0.1, 0.5)})  # another current in each episode
    boats = VectorEnv(env, num_envs=8)
    state, observation = boats.reset(jax.random.key(0))
    step = jax.jit(boats.step)
    for _ in range(20):
        state, outcome = step(state, jnp.full((8, 1), 0.3))  # [B, *action_shape]
    print("returns of the last episodes:", outcome.episode_return)
    print("final observations where one ended:", outcome.final_observation[outcome.ended])
    # --8<-- [end:use]
