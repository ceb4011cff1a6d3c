"""`risk_ladder` with a shield that keeps the probability of a fall under a bound."""

from typing import Any

import jax

from dressage.config import Option
from dressage.envs.registry import ShippedTask
from dressage.envs.suite.risk_ladder import OPTIONS, LadderState, RiskLadder
from dressage.shield.functional import ShieldedEnv, shielded
from dressage.shield.probabilistic import ProbabilisticShield

BOUND_OPTION = Option(
    "bound",
    0.05,
    "number",
    minimum=0.0,
    maximum=1.0,
    open_minimum=True,
    help="Greatest probability of a fall in an episode.",
)


def shielded_risk_ladder(
    rungs: int = 10, risk: float = 0.05, bound: float = 0.05, max_steps: int = 60
) -> ShieldedEnv:
    """Make `risk_ladder` with a `ProbabilisticShield`, whose parameter is the share of the bound to use now.

    Args:
        rungs: Rungs, the top included, at least 3.
        risk: Probability of a fall of a leap from the lowest rung.
        bound: Greatest probability of a fall in an episode.
        max_steps: Time limit in steps.

    Raises:
        ConfigError: If no policy keeps the bound.
    """
    env = RiskLadder(rungs, risk, max_steps)
    return shielded(env, ProbabilisticShield(env.falls(), env.climbs(), bound), see_rung)


def see_rung(state: LadderState, observation: Any, agent: str) -> jax.Array:  # noqa: ANN401
    """Show the shield the climber's rung."""
    return state.rung


TASK = ShippedTask(
    shielded_risk_ladder,
    (*OPTIONS, BOUND_OPTION),
    "Climb fast; a shield keeps the probability of a fall under a bound.",
)
