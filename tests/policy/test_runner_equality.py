import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from rsl_rl.runners import DistillationRunner, OnPolicyRunner  # noqa: E402

from dressage.policy import PolicyConfig  # noqa: E402
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy  # noqa: E402
from dressage.policy.rsl_rl_policy.vec_env import VecEnvRollouts  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402
from dressage.runtime import Engine, RunSpec, RuntimeConfig  # noqa: E402
from tests.policy.plain_loop import PlainLoop, largest_difference  # noqa: E402
from tests.policy.rsl_rl_configs import distillation_config, ppo_config, recurrent_config  # noqa: E402
from tests.policy.small_envs import Camera, mirrored_pendulum  # noqa: E402

RND = {
    "weight": 2.0,
    "num_outputs": 3,
    "predictor_hidden_dims": [8],
    "target_hidden_dims": [8],
    "state_normalization": True,
    "reward_normalization": True,
    "weight_schedule": {"mode": "linear", "initial_step": 4, "final_step": 30, "final_value": 0.5},
}
SYMMETRY = {
    "data_augmentation_func": mirrored_pendulum,
    "use_data_augmentation": True,
    "use_mirror_loss": True,
    "mirror_loss_coeff": 0.5,
}
CAMERA = {"class_name": "CNNModel", "cnn_cfg": {"output_channels": [4], "kernel_size": 3}}


def short_pendulum():
    return Pendulum(num_envs=6, max_steps=11, seed=3)


def run_runner(config, env, iterations=5):
    """Train rsl_rl's own runner from seed 7."""
    torch.manual_seed(7)
    runner = OnPolicyRunner(env, copy.deepcopy(config), log_dir=None)
    runner.learn(iterations)
    return runner.alg


def runner_states(algorithm):
    states = {"actor": algorithm.actor.state_dict(), "critic": algorithm.critic.state_dict()}
    return states | ({"rnd": algorithm.rnd.state_dict()} if algorithm.rnd else {})


def run_ours(config, env, iterations=5, **options):
    """Train the two roles from seed 7, by rsl_rl's rule for time-outs unless told otherwise."""
    torch.manual_seed(7)
    loop = PlainLoop(env, config, **({"time_out_bootstrap": "rsl_rl"} | options))
    return loop, loop.iterate(iterations)


def run_engine(config, make_env, iterations=5):
    """Train by the engine with one inline worker from seed 7, by rsl_rl's rule for time-outs."""
    spec = RunSpec(
        RSLRLPolicy,
        PolicyConfig(policy_kwargs=config, time_out_bootstrap="rsl_rl"),
        lambda seed: VecEnvRollouts(make_env(), "test"),
    )
    with Engine(spec, RuntimeConfig(seed=7)) as engine:
        report = engine.run(iterations)
        return engine.learner, report.metrics


def assert_equal_after_five_iterations(config, make_env):
    algorithm = run_runner(config, make_env())
    learner, metrics = run_engine(config, make_env)
    states = learner.get_trainable_parameters()
    rate = states.pop("schedule")["learning_rate"]
    assert largest_difference(runner_states(algorithm), states) == 0.0
    assert float(rate) == algorithm.learning_rate
    return metrics


@pytest.mark.parametrize(
    "config", [ppo_config(), recurrent_config(), recurrent_config(rnn_type="gru")], ids=["mlp", "lstm", "gru"]
)
def test_five_iterations_of_the_engine_equal_those_of_rsl_rls_runner_to_the_last_bit(config):
    metrics = assert_equal_after_five_iterations(config, short_pendulum)
    assert metrics["training/time_outs_rsl_rl"] > 0


@pytest.mark.parametrize("config", [ppo_config(), recurrent_config()], ids=["mlp", "lstm"])
def test_fragments_that_travel_as_numpy_arrays_change_no_bit(config):
    by_torch, _ = run_ours(config, short_pendulum())
    by_numpy, _ = run_ours(config, short_pendulum(), host=True)
    states = by_torch.learner.get_trainable_parameters()
    assert largest_difference(states, by_numpy.learner.get_trainable_parameters()) == 0.0


def test_intrinsic_rewards_and_their_normalisers_equal_those_of_the_runner():
    config = ppo_config(rnd_cfg=RND)
    config["obs_groups"]["rnd_state"] = ["policy"]
    metrics = assert_equal_after_five_iterations(config, short_pendulum)
    assert metrics["training/intrinsic_reward"] > 0.0
    assert metrics["training/rnd_loss"] > 0.0


@pytest.mark.parametrize("optimizer", ["adamw", "sgd", "rmsprop"])
def test_every_optimiser_equals_that_of_the_runner(optimizer):
    assert_equal_after_five_iterations(ppo_config(optimizer=optimizer), short_pendulum)


def test_symmetric_augmentation_and_mirror_loss_equal_those_of_the_runner():
    metrics = assert_equal_after_five_iterations(ppo_config(symmetry_cfg=SYMMETRY), short_pendulum)
    assert metrics["training/symmetry_loss"] > 0.0


# rsl_rl gives a shared encoder's parameters to the optimiser twice.
@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate:UserWarning")
@pytest.mark.parametrize("shared", [False, True], ids=["own encoders", "shared encoder"])
def test_pictures_beside_numbers_equal_those_of_the_runner(shared):
    config = ppo_config(share_cnn_encoders=True) if shared else ppo_config()
    config["obs_groups"] = {"actor": ["policy", "camera"], "critic": ["policy", "camera"]}
    for model in ("actor", "critic"):
        config[model] = config[model] | CAMERA
    assert_equal_after_five_iterations(config, Camera)


def test_the_value_of_the_final_observation_learns_something_else_than_rsl_rls_rule():
    by_rule, _ = run_ours(ppo_config(), short_pendulum())
    by_final, metrics = run_ours(ppo_config(), short_pendulum(), time_out_bootstrap="final_observation")
    states = by_rule.learner.get_trainable_parameters()
    assert metrics["training/time_outs_final_observation"] > 0
    assert metrics["training/time_outs_rsl_rl"] == 0
    assert largest_difference(states, by_final.learner.get_trainable_parameters()) > 0.0


def test_a_student_that_is_taught_equals_that_of_rsl_rls_runner(tmp_path):
    teacher = tmp_path / "teacher.pt"
    taught, _ = run_ours(ppo_config(), short_pendulum(), iterations=1)
    taught.learner.save_checkpoint(teacher, {})
    torch.manual_seed(7)
    runner = DistillationRunner(short_pendulum(), distillation_config(), log_dir=None)
    runner.load(str(teacher))
    runner.learn(5)
    torch.manual_seed(7)
    loop = PlainLoop(short_pendulum(), distillation_config())
    loop.learner.load_checkpoint(teacher)
    loop.iterate(5)
    states = loop.learner.get_trainable_parameters()
    states.pop("schedule")
    theirs = {"student": runner.alg.student.state_dict(), "teacher": runner.alg.teacher.state_dict()}
    assert largest_difference(theirs, states) == 0.0


class InPlace(Pendulum):
    """Writes rewards, ends and restored states into the same memory at every step, as fast simulators do."""

    def __init__(self):
        super().__init__(num_envs=6, max_steps=11, seed=3)
        self.modes = []
        self._rewards = torch.zeros(6)
        self._dones, self._time_outs = torch.zeros(6, dtype=torch.bool), torch.zeros(6, dtype=torch.bool)

    def step(self, actions):
        self.modes.append(torch.is_inference_mode_enabled())
        observation, rewards, dones, extras = super().step(actions)
        self._rewards[:], self._dones[:], self._time_outs[:] = rewards, dones, extras["time_outs"]
        return observation, self._rewards, self._dones, {"time_outs": self._time_outs}

    def load_state(self, state):
        self._states.copy_(torch.tensor(state["states"]))
        self.episode_length_buf.copy_(torch.tensor(state["episode_length"]))
        self._random.set_state(torch.tensor(state["random"]))


def test_an_environment_that_reuses_the_memory_of_rewards_and_ends_teaches_what_it_teaches_the_runner():
    assert_equal_after_five_iterations(ppo_config(), InPlace)


def test_the_environment_is_stepped_in_the_mode_in_which_the_runner_steps_it():
    theirs, ours = InPlace(), InPlace()
    run_runner(ppo_config(), theirs, iterations=1)
    run_engine(ppo_config(), lambda: ours, iterations=1)
    assert set(theirs.modes) == set(ours.modes) == {True}


def test_a_state_is_restored_in_the_mode_in_which_the_environment_was_stepped(tmp_path):
    env = InPlace()
    spec = RunSpec(RSLRLPolicy, PolicyConfig(policy_kwargs=ppo_config()), lambda seed: VecEnvRollouts(env))
    with Engine(spec, RuntimeConfig(seed=7)) as engine:
        engine.run(1)
        engine.save(tmp_path / "checkpoint")
        states = env.states.clone()
        engine.run(2)
        engine.resume(tmp_path / "checkpoint")
    assert torch.equal(env.states, states)
