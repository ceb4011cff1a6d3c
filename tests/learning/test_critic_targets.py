"""What the critic learns on a cycle of three phases, whose values are known: through every kind of driver."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from dressage.envs import from_gymnasium
from dressage.learning.host_driver import HostRun
from dressage.learning.host_env import FunctionalHostEnv, HostSingleAgentEnv
from dressage.learning.runs import CompiledRun
from dressage.learning.specs import AgentSpec
from tests.learning.tiny import Cycle, GymnasiumCycle, group_of_one, hyperparameters, learner, single

STEPS, COPIES, UPDATES, EPOCHS = 10, 4, 120, 4
GAMMA = 0.9
SPEC = AgentSpec("agent", 3, 2, "discrete", (2,), (), (0,))

# Time limits are no ends of the world: reward 1 for ever is worth 1 / (1 - 0.9) = 10. A critic that takes a
# time limit of 4 steps for a termination finds 1 + 0.9 + 0.81 + 0.729 = 3.4 at most.
FOREVER = [10.0, 10.0, 10.0]
# Reward 1 on leaving the last phase only: 1 / (1 - 0.9^3) = 3.69 there, discounted before. An episode of 4
# steps from phase 0 stops on phase 1 and starts again on phase 0, which is worth less: 2.99 against 3.32.
LATE = (np.array([0.81, 0.9, 1.0]) / (1 - 0.9**3)).tolist()
# True termination behind the last phase: finite sums.
FINITE = [1 + 0.9 + 0.81, 1 + 0.9, 1.0]

LATE_REWARDS = (0.0, 0.0, 1.0)


@pytest.fixture(scope="module")
def groups():
    hyper = hyperparameters(
        learning_rate=0.15,
        gamma=GAMMA,
        gae_lambda=0.95,
        entropy_coef=0.0,
        max_grad_norm=100.0,
        value_coef=1.0,
    )
    return group_of_one(
        learner(
            SPEC,
            hyper=hyper,
            hidden=(),
            epochs=EPOCHS,
            minibatches=1,
            total_optimizer_steps=UPDATES * EPOCHS,
            anneal=True,
            clip_value_loss=False,
        )
    )


def learned_values(run, groups):
    state, _ = run.advance(run.init(), UPDATES)
    critic = groups[0].learner.network
    return np.asarray(critic.apply(state.agents[0].params, jnp.eye(3), method="value"))


def compiled(groups, env, fixed_init):
    return CompiledRun(single(env, COPIES, fixed_init=fixed_init), groups, STEPS, (0,), None, env.max_steps)


def on_the_host(groups, env, fixed_init):
    copies = FunctionalHostEnv(single(env, COPIES, fixed_init=fixed_init))
    return HostRun(lambda _: copies, groups, STEPS, 0, COPIES, 0, None)


def gymnasium_run(groups, mode, *options):
    vector = SyncVectorEnv([lambda: GymnasiumCycle(*options)] * COPIES, autoreset_mode=mode)
    copies = HostSingleAgentEnv(from_gymnasium(vector))
    return HostRun(lambda _: copies, groups, STEPS, 0, COPIES, 0, None)


@pytest.mark.parametrize("fixed_init", [True, False])
def test_by_the_compiled_driver_reward_one_for_ever_is_worth_ten(groups, fixed_init):
    run = compiled(groups, Cycle(random_start=True), fixed_init)
    np.testing.assert_allclose(learned_values(run, groups), FOREVER, atol=0.3)


def test_by_the_compiled_driver_the_final_observation_is_bootstrapped_from(groups):
    run = compiled(groups, Cycle(LATE_REWARDS), False)
    np.testing.assert_allclose(learned_values(run, groups), LATE, atol=0.05)


def test_by_the_compiled_driver_a_termination_ends_the_sum(groups):
    run = compiled(groups, Cycle(max_steps=100, terminates=True), True)
    np.testing.assert_allclose(learned_values(run, groups), FINITE, atol=0.05)


@pytest.mark.parametrize("fixed_init", [True, False])
def test_by_the_host_driver_reward_one_for_ever_is_worth_ten(groups, fixed_init):
    run = on_the_host(groups, Cycle(random_start=True), fixed_init)
    np.testing.assert_allclose(learned_values(run, groups), FOREVER, atol=0.3)


MODES = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP, AutoresetMode.DISABLED]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_with_gymnasium_reward_one_for_ever_is_worth_ten(groups, mode):
    np.testing.assert_allclose(learned_values(gymnasium_run(groups, mode), groups), FOREVER, atol=0.3)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_with_gymnasium_the_final_observation_is_bootstrapped_from(groups, mode):
    run = gymnasium_run(groups, mode, LATE_REWARDS)
    np.testing.assert_allclose(learned_values(run, groups), LATE, atol=0.05)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_with_gymnasium_a_termination_ends_the_sum(groups, mode):
    run = gymnasium_run(groups, mode, (1.0, 1.0, 1.0), 100, True)
    np.testing.assert_allclose(learned_values(run, groups), FINITE, atol=0.05)


def test_rows_of_a_next_step_reset_are_no_samples(groups):
    run = gymnasium_run(groups, AutoresetMode.NEXT_STEP)
    state, metrics = run.advance(run.init(), 1)
    # Ten rows hold two episodes of four steps and two resets a copy.
    assert metrics["train/episodes"] == [2 * COPIES]
    assert metrics["train/episode_length"] == [4]
    assert metrics["train/episode_return"] == [4]
    assert jax.tree.leaves(state.environment) == []
