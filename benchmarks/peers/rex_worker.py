"""Worker of rex-lib: its PPO on a pendulum with Gymnasium's equations, written as one of its environments.

rex's own pendulum is a graph of nodes with delays, which dressage has not; the plain pendulum here does the
same arithmetic as dressage's, so that the learners are compared.
"""

from functools import partial

import jax
import jax.numpy as jnp
from flax.core import FrozenDict
from protocol import Prepared, compiled, serve, settings
from rex.base import GraphState
from rex.ppo import Config, PPOResult, train
from rex.rl import BaseEnv, Box, ResetReturn, StepReturn

GIVEN = settings()
MAX_STEPS, MAX_TORQUE, MAX_SPEED, TIME_STEP = 200, 2.0, 8.0, 0.05


class Pendulum(BaseEnv):
    """Gymnasium's `Pendulum-v1` as an environment of rex; its state lies where rex looks for it."""

    max_steps = MAX_STEPS

    def __init__(self) -> None:
        self.params = None

    def observation_space(self, graph_state: GraphState) -> Box:
        """`(cos, sin, speed)`."""
        high = jnp.array([1.0, 1.0, MAX_SPEED])
        return Box(-high, high)

    def action_space(self, graph_state: GraphState) -> Box:
        """The torque."""
        high = jnp.array([MAX_TORQUE])
        return Box(-high, high)

    def reset(self, rng: jax.Array) -> ResetReturn:
        """Draw angle and speed."""
        drawn = jax.random.uniform(rng, (2,), minval=-1.0, maxval=1.0)
        graph_state = GraphState(
            step=jnp.int32(0),
            rng=FrozenDict(world=rng),
            state=FrozenDict(world=(drawn[0] * jnp.pi, drawn[1])),
        )
        return graph_state, observe(drawn[0] * jnp.pi, drawn[1]), {}

    def step(self, graph_state: GraphState, action: jax.Array) -> StepReturn:
        """Apply the torque for one step."""
        angle, speed = graph_state.state["world"]
        torque = jnp.clip(action[0], -MAX_TORQUE, MAX_TORQUE)
        cost = angle**2 + 0.1 * speed**2 + 0.001 * torque**2
        speed = jnp.clip(speed + (15.0 * jnp.sin(angle) + 3.0 * torque) * TIME_STEP, -MAX_SPEED, MAX_SPEED)
        angle = angle + speed * TIME_STEP
        angle = angle - 2 * jnp.pi * jnp.round(angle / (2 * jnp.pi))
        graph_state = graph_state.replace(step=graph_state.step + 1, state=FrozenDict(world=(angle, speed)))
        return graph_state, observe(angle, speed), -cost, False, graph_state.step >= MAX_STEPS, {}


def observe(angle: jax.Array, speed: jax.Array) -> jax.Array:
    """Return what the agent sees."""
    return jnp.stack([jnp.cos(angle), jnp.sin(angle), speed])


def prepare() -> Prepared:
    """Compile the whole training program, evaluations included."""
    config = Config(VERBOSE=False, **GIVEN["config"])
    executable, trace_seconds, compile_seconds = compiled(
        partial(train, Pendulum(), config), jax.random.key(0)
    )

    def run(seed: int) -> dict[str, float]:
        result: PPOResult = jax.block_until_ready(executable(jax.random.key(seed)))
        return {
            "steps": float(config.NUM_TIMESTEPS),
            "evaluated": float(result.metrics["eval/mean_returns"][-1]),
        }

    return Prepared(run, trace_seconds, compile_seconds, ("rex-lib", "jax", "jaxlib", "flax", "optax"))


serve(prepare)
