"""rsl_rl's algorithms through the engine: what its own runner learns, wherever the workers are."""

import copy
import functools
import multiprocessing

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from rsl_rl.runners import OnPolicyRunner  # noqa: E402

from dressage.policy import PolicyConfig, TrainConfig  # noqa: E402
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy  # noqa: E402
from dressage.policy.rsl_rl_policy.vec_env import VecEnvRollouts  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402
from dressage.runtime import Engine, RunSpec, RuntimeConfig  # noqa: E402
from tests.policy.plain_loop import largest_difference  # noqa: E402
from tests.policy.rsl_rl_configs import ppo_config, recurrent_config  # noqa: E402
from tests.runtime.gloo_ranks import train_rank  # noqa: E402
from tests.runtime.toys import Rows  # noqa: E402

SEED = 7


def make_pendulum(seed, num_envs=6):
    return VecEnvRollouts(Pendulum(num_envs=num_envs, max_steps=11, seed=seed), "pendulum")


def pendulum_run(config=None, rollout_mode="sync", rule="rsl_rl", num_envs=6):
    policy = PolicyConfig(
        policy_kwargs=ppo_config() if config is None else config,
        rollout_mode=rollout_mode,
        time_out_bootstrap=rule,
    )
    return RunSpec(RSLRLPolicy, policy, functools.partial(make_pendulum, num_envs=num_envs))


def train(spec, updates=5, rows=None, **options):
    sinks = () if rows is None else (rows,)
    with Engine(spec, RuntimeConfig(**{"seed": SEED, **options}), sinks=sinks) as engine:
        engine.run(updates)
        return engine.learner.get_trainable_parameters()


@pytest.fixture(scope="module", params=["mlp", "lstm"])
def runners_own(request):
    """A configuration with what rsl_rl's runner makes of it in five iterations."""
    config = ppo_config() if request.param == "mlp" else recurrent_config()
    torch.manual_seed(SEED)
    runner = OnPolicyRunner(
        Pendulum(num_envs=6, max_steps=11, seed=SEED), copy.deepcopy(config), log_dir=None
    )
    runner.learn(5)
    algorithm = runner.alg
    states = {"actor": algorithm.actor.state_dict(), "critic": algorithm.critic.state_dict()}
    rate = {"learning_rate": torch.tensor(algorithm.learning_rate, dtype=torch.float64)}
    return config, {**states, "schedule": rate}


@pytest.mark.parametrize("transport", ["inline", pytest.param("processes", marks=pytest.mark.slow)])
def test_one_worker_learns_what_rsl_rls_runner_learns_to_the_last_bit(runners_own, transport):
    config, states = runners_own
    rows = Rows()
    ours = train(pendulum_run(config), rows=rows, transport=transport)
    assert largest_difference(ours, states) == 0.0
    assert sum(row["training/time_outs_rsl_rl"] for row in rows.of("train")) > 0
    assert rows[0]["event"] == "exact resume: yes"


@pytest.mark.slow
def test_two_workers_learn_the_same_inline_and_in_processes():
    spec = pendulum_run(rule="final_observation")
    inline = train(spec, workers=2, transport="inline")
    assert largest_difference(inline, train(spec, workers=2, transport="processes")) == 0.0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.filterwarnings("ignore::FutureWarning:ray")
def test_one_worker_on_ray_learns_what_rsl_rls_runner_learns_to_the_last_bit(runners_own):
    pytest.importorskip("ray")
    config, states = runners_own
    assert largest_difference(train(pendulum_run(config), address="local"), states) == 0.0


@pytest.mark.parametrize("config", [ppo_config(), recurrent_config()], ids=["mlp", "lstm"])
def test_a_resumed_run_equals_the_uninterrupted_one_to_the_last_bit(tmp_path, config):
    spec, options = pendulum_run(config), RuntimeConfig(seed=SEED)
    whole = train(spec, updates=5)
    with Engine(spec, options, folder=tmp_path) as engine:
        engine.run(2)
    with Engine(spec, options, folder=tmp_path) as engine:
        assert engine.resume() == 2
        engine.run(5)
        assert largest_difference(engine.learner.get_trainable_parameters(), whole) == 0.0


def test_lagging_fragments_are_corrected_by_v_trace():
    rows = Rows()
    train(pendulum_run(rollout_mode="async"), updates=4, rows=rows, workers=2, transport="inline")
    found = rows.of("train")
    assert [row["runtime/lag_max"] for row in found] == [0, 1, 1, 1]
    assert "training/importance_ratio" not in found[0]
    assert all(0.5 < row["training/importance_ratio"] < 2.0 for row in found[1:])


def ranks(shares, meeting_place):
    """Train one rank for each share of environments; returns each rank's parameters."""
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    processes = [
        context.Process(target=train_rank, args=(rank, shares, meeting_place, answers), daemon=True)
        for rank in range(len(shares))
    ]
    for process in processes:
        process.start()
    found = dict(answers.get() for _ in processes)
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    return [found[rank] for rank in range(len(shares))]


@pytest.mark.slow
@pytest.mark.parametrize("shares", [(4, 4), (2, 6)], ids=["equal", "uneven"])
def test_two_ranks_keep_equal_parameters_normalisers_and_learning_rates(tmp_path, shares):
    first, second = ranks(shares, str(tmp_path / "meeting"))
    assert first.keys() == second.keys()
    assert any("normalizer" in name for name in first)
    assert "schedule/learning_rate" in first
    for name, array in first.items():
        np.testing.assert_array_equal(array, second[name])


def test_ranks_without_a_process_group_are_refused():
    from dressage.errors import ConfigError

    with pytest.raises(ConfigError, match="asks for 2 learners"):
        Engine(pendulum_run(), RuntimeConfig(), TrainConfig(rank=0, world_size=2))
