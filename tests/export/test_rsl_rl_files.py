"""Policies of rsl_rl leave home by the same files: perceptrons, GRUs and LSTMs, with their normaliser."""

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")
pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from rsl_rl.modules.distribution import BetaDistribution  # noqa: E402
from tensordict import TensorDict  # noqa: E402

from dressage.errors import CheckpointError, ConfigError  # noqa: E402
from dressage.export import FORMATS, export_policy, load_policy, verify_file  # noqa: E402
from dressage.export.exporting import open_runner  # noqa: E402
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402
from tests.policy.plain_loop import PlainLoop  # noqa: E402
from tests.policy.rsl_rl_configs import GAUSSIAN, ppo_config, recurrent_config  # noqa: E402

CONFIGS = {
    "perceptron": ppo_config(),
    "lstm": recurrent_config(),
    "gru of two layers": recurrent_config(rnn_type="gru"),
    "heteroscedastic": ppo_config(),
}
CONFIGS["gru of two layers"]["actor"]["rnn_num_layers"] = 2
CONFIGS["heteroscedastic"]["actor"]["distribution_cfg"] = GAUSSIAN | {
    "class_name": "HeteroscedasticGaussianDistribution"
}


def policy_of(kind):
    """A policy with drawn weights whose normaliser has mean 50 and variance 400."""
    torch.manual_seed(0)
    policy = PlainLoop(Pendulum(4), CONFIGS[kind]).actor
    normalizer = policy.algo.actor.obs_normalizer
    for buffer, value in ((normalizer._mean, 50.0), (normalizer._var, 400.0), (normalizer._std, 20.0)):
        buffer.fill_(value)
    return policy


@pytest.fixture(scope="module", params=CONFIGS)
def policy(request):
    return policy_of(request.param)


def test_every_format_acts_as_rsl_rl_does_through_an_episode(policy, tmp_path):
    actor = policy.algo.actor
    observations = np.random.default_rng(0).normal(50, 20, (6, 2, 3)).astype(np.float32)
    for name in FORMATS:
        path = export_policy(policy, tmp_path / f"policy.{name}")
        assert verify_file(path).passed
        runner, state = open_runner(path), None
        actor.reset()
        for observation in observations:
            live = acted(actor, observation)
            answer = runner.act(observation, state) if actor.is_recurrent else runner.act(observation)
            action, state = answer if actor.is_recurrent else (answer, None)
            np.testing.assert_allclose(action, live, rtol=1e-4, atol=1e-5)


def acted(actor, observation):
    with torch.inference_mode():
        groups = {"policy": torch.tensor(observation)}
        return actor(TensorDict(groups, batch_size=[len(observation)])).numpy()


def test_every_format_acts_as_rsl_rl_does_on_4096_observations_with_extremes(policy, tmp_path):
    actor = policy.algo.actor
    observations = np.random.default_rng(1).normal(50, 20, (4096, 3)).astype(np.float32)
    observations[::8], observations[1::8], observations[2::8], observations[3::8] = 1e6, -1e6, 0.0, 2e4
    exact_actor = copy.deepcopy(actor).double()
    actor.reset()
    exact_actor.reset()
    live, exact = acted(actor, observations), acted(exact_actor, observations.astype(np.float64))
    actor.reset()
    allowed = 1e-5 * np.maximum(1.0, np.abs(live)) + 4.0 * np.abs(live - exact)
    for name in FORMATS:
        runner = open_runner(export_policy(policy, tmp_path / f"policy.{name}"))
        action = runner.act(observations)
        action = action[0] if actor.is_recurrent else action
        assert (np.abs(action - live) <= allowed).all(), name
        ordinary = slice(4, None, 8)
        np.testing.assert_allclose(action[ordinary], live[ordinary], rtol=1e-4, atol=1e-5)


def test_exporting_changes_neither_weights_nor_memory(policy, tmp_path):
    before = {name: value.clone() for name, value in policy.algo.actor.state_dict().items()}
    policy.algo.actor.reset()
    export_policy(policy, tmp_path / "policy.safetensors")
    assert policy.algo.actor.get_hidden_state() is None
    after = policy.algo.actor.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    with pytest.raises(CheckpointError, match="cannot load back"):
        load_policy(tmp_path)


def test_what_cannot_be_exported_whole_is_refused_with_the_reason(tmp_path):
    policy = policy_of("perceptron")
    policy.algo.actor.mlp[1] = torch.nn.LeakyReLU()
    with pytest.raises(ConfigError, match="its activation is LeakyReLU.*; ELU, ReLU, .* can be"):
        export_policy(policy, tmp_path / "policy.onnx")
    policy = policy_of("perceptron")
    policy.algo.actor.distribution = BetaDistribution(1)
    with pytest.raises(ConfigError, match="its distribution is a BetaDistribution; Gaussian ones can be"):
        export_policy(policy, tmp_path / "policy.onnx")
    policy.algo.get_policy = lambda: torch.nn.Linear(3, 1)
    with pytest.raises(ConfigError, match="a Linear; MLPModel and RNNModel can be"):
        export_policy(policy, tmp_path / "policy.onnx")
    assert list(tmp_path.iterdir()) == []
    assert isinstance(policy, RSLRLPolicy)
