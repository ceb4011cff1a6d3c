"""Learning under a limit against the exact optimum, in small; benchmarks/limits.py does it in full."""

import numpy as np
import pytest

from dressage import envs
from dressage.envs.suite import solve_cmdp
from dressage.rl.icpo import CPO
from dressage.rl.ippo_lag import IPPO_Lagrangian

COMMON = {
    "num_envs": 32,
    "rollout_length": 64,
    "gamma": 1.0,
    "cost_gamma": 1.0,
    "learning_rate": 1e-3,
    "network": {"hidden_sizes": [32, 32]},
}
LEARNERS = {
    IPPO_Lagrangian: (COMMON | {"clip_value_loss": False, "anneal_learning_rate": True}, "multiplier"),
    CPO: (COMMON, "cost_multiplier"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEARNERS, ids=lambda kind: kind.NAME)
@pytest.mark.parametrize(
    ("task", "options", "limit", "steps"),
    [("budget_bandit", {}, 2.0, 307_200), ("shortcut_cmdp", {"slip": 0.1}, 1.0, 614_400)],
)
def test_the_optimum_is_reached_and_the_limit_kept(kind, task, options, limit, steps):
    env = envs.make(task, **options)
    best = solve_cmdp(env, limit, 1.0)
    settings, price = LEARNERS[kind]
    learner = kind(settings | {"cost_limit": limit})
    results = learner.train_seeds(env, steps, [0, 1, 2, 3])
    played = learner.evaluate(env, 1000)["agent"]
    error = played["costs"].std(ddof=1) / np.sqrt(played["costs"].size)
    assert played["returns"].mean() == pytest.approx(best.optimum, rel=0.05)
    # Four seeds of a short training: their own spread comes on top of the episodes'.
    spread = played["costs"].mean(axis=1).std(ddof=1) / 2
    assert played["costs"].mean() <= limit + 2 * np.hypot(error, spread)
    late = [[row[price] for row in one.metrics["agent"]][len(one.metrics["agent"]) // 2 :] for one in results]
    assert np.nanmean(late) == pytest.approx(best.multiplier, rel=0.1)
