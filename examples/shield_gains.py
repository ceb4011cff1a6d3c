"""What the gain of a barrier shield does to a crossing: the same scripted robots, from timid to bold.

Run it: `python examples/shield_gains.py`
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from dressage.envs import MultiAgentVectorEnv, make

Carry = tuple[Any, jax.Array]  # the copies' state, what the robots observe

GAINS = (0.1, 0.3, 0.69, 2.0, 8.0, 32.0)  # 1/s; an untrained policy starts at 10 softplus(0) = 6.9


def steer(observation: jax.Array) -> jax.Array:
    """Push to the goal and a little to the right of it, so that robots pass one another on one side."""
    velocity, way = observation[..., :2], observation[..., 2:4]
    right = jnp.stack([way[..., 1], -way[..., 0]], axis=-1)
    return jnp.clip(1.5 * (way + 0.4 * right) - 2.0 * velocity, -1.0, 1.0)


def cross(vector: MultiAgentVectorEnv, gain: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Play an episode in every copy.

    Returns:
        Mean return of a robot, collisions of all, and the share of steps in which shields intervened.
    """
    parameter = jnp.where(gain < 20, jnp.log(jnp.expm1(gain)), gain)  # what softplus makes the gain of

    def step(carry: Carry, _: None) -> tuple[Carry, tuple[jax.Array, ...]]:
        state, observation = carry
        parameters = jnp.full((*observation.shape[:-1], 1), parameter)
        action = jnp.concatenate([steer(observation), parameters], axis=-1)
        state, after = vector.step_groups(state, (action,))
        robots = after.groups[0]
        returned = jnp.where(robots.ended, robots.episode_return, 0.0)
        intervened = jnp.stack([info["shield_intervened"] for info in after.infos.values()])
        return (state, robots.observation), (returned, robots.cost, intervened)

    state, observations, _ = vector.reset_groups(jax.random.key(0))
    carry = state, observations[0]
    _, (returns, costs, intervened) = jax.lax.scan(step, carry, length=vector.max_steps)
    return returns.sum(axis=0).mean(), costs.sum(), intervened.mean()


def scan(gains: tuple[float, ...] = GAINS, copies: int = 128) -> list[np.ndarray]:
    """Return mean returns, collisions and shares of interventions, each `[gains]`."""
    vector = MultiAgentVectorEnv(make("shielded_crossing", continuous=True, gain_scale=1.0), copies)
    found = jax.jit(lambda gains: jax.lax.map(lambda gain: cross(vector, gain), gains))(jnp.array(gains))
    return [np.asarray(values) for values in found]


def main() -> None:
    """Print a table."""
    returns, collisions, interventions = scan()
    print("gain 1/s   return   collisions   interventions")
    for row in zip(GAINS, returns, collisions, interventions, strict=True):
        print("{:8.2f}   {:6.2f}   {:10.0f}   {:12.0%}".format(*row))


if __name__ == "__main__":
    main()
