"""The number of optimiser applications foretold equals the learner's own counter, rollout by rollout."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.equations.schedules import num_optimizer_steps_for_timesteps
from dressage.learning.proximal import ProximalLearner
from dressage.learning.records import Experience, Observed, Outcome
from dressage.learning.specs import AgentSpec
from tests.learning.tiny import learner

SPEC = AgentSpec("agent", 1, 2, "discrete", (2,), (), (0,))

learn = jax.jit(ProximalLearner.learn)

# Case G19: timesteps, rollout length, epochs, requested minibatches, applications.
ROWS = [
    pytest.param(1024, 128, 4, 4, 128, marks=pytest.mark.slow),
    pytest.param(1000, 128, 4, 4, 128, marks=pytest.mark.slow),
    pytest.param(130, 128, 2, 4, 12, marks=pytest.mark.slow),
    pytest.param(64, 128, 4, 4, 16, marks=pytest.mark.slow),
    (10, 10, 1, 4, 4),
    pytest.param(10, 10, 3, 16, 30, marks=pytest.mark.slow),
    (7, 3, 2, 2, 10),
    (0, 128, 4, 4, 0),
]


def rollout(samples):
    rows = jnp.arange(samples, dtype=jnp.float32)[:, None]
    ends = jnp.zeros((samples, 1), bool)
    outcome = Outcome(None, rows[..., None], rows, ends, ends, rows, ends.astype(jnp.int32))
    logits = jnp.zeros((samples, 1, 2))
    return Experience(Observed(rows[..., None]), (logits, None), ends.astype(jnp.int32), outcome)


@pytest.mark.parametrize(("timesteps", "length", "epochs", "requested", "expected"), ROWS)
def test_the_count_foretold_is_the_optimizers_own(timesteps, length, epochs, requested, expected):
    assert num_optimizer_steps_for_timesteps(timesteps, length, epochs, requested) == expected
    one = learner(SPEC, hidden=(), epochs=epochs, minibatches=requested)
    state = one.init(jax.random.key(0), 1)
    for first in range(0, timesteps, length):
        state, metrics = learn(one, state, rollout(min(length, timesteps - first)), jax.random.key(first))
        assert metrics["skipped_minibatches"] == 0
    assert int(state.optimizer_steps) == expected
    assert int(state.opt_state.count) == expected
    assert np.isfinite(jax.tree.leaves(state.params)[0]).all()
