import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("rsl_rl")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

from dressage.errors import StaleWeightsError  # noqa: E402
from dressage.policy.rsl_rl_policy.off_policy import vtrace  # noqa: E402
from dressage.policy.torch_envs.pendulum import Pendulum  # noqa: E402
from tests.policy.plain_loop import PlainLoop  # noqa: E402
from tests.policy.rsl_rl_configs import distillation_config, ppo_config, recurrent_config  # noqa: E402


def summed_target(start, rewards, values, next_values, ratios, terminated, ends, gamma, lam):
    """One V-trace target of one copy as the sum in the paper: every later surprise, discounted and traced."""
    total, trace = values[start], 1.0
    for step in range(start, len(rewards)):
        clipped = min(1.0, ratios[step])
        follows = 0.0 if terminated[step] else gamma * next_values[step]
        total += gamma ** (step - start) * trace * clipped * (rewards[step] + follows - values[step])
        trace *= lam * clipped
        if ends[step]:
            break
    return total


numbers = st.floats(-2.0, 2.0)
step = st.tuples(
    numbers, numbers, st.floats(0.1, 3.0), st.sampled_from(["goes on", "terminates", "is cut"]), numbers
)


@given(
    steps=st.lists(step, min_size=1, max_size=6),
    last=numbers,
    gamma=st.floats(0.0, 1.0),
    lam=st.floats(0.0, 1.0),
)
def test_targets_and_advantages_equal_the_sums_of_the_paper(steps, last, gamma, lam):
    rewards, values, ratios, ends, finals = (list(column) for column in zip(*steps, strict=True))
    terminated = [end == "terminates" for end in ends]
    ended = [end != "goes on" for end in ends]
    following = [*values[1:], last]
    followed = [f if e == "is cut" else n for f, e, n in zip(finals, ends, following, strict=True)]
    columns = (rewards, values, followed, ratios, terminated, ended)
    targets = [summed_target(start, *columns, gamma, lam) for start in range(len(rewards))]
    ahead = [n if e else t for n, e, t in zip(followed, ended, [*targets[1:], last], strict=True)]
    advantages = [
        min(1.0, rho) * (r + (0.0 if t else gamma * n) - v)
        for rho, r, t, n, v in zip(ratios, rewards, terminated, ahead, values, strict=True)
    ]
    tensors = [torch.tensor(column, dtype=torch.float64).unsqueeze(1) for column in columns[:4]]
    flags = [torch.tensor(column).unsqueeze(1) for column in columns[4:]]
    found = vtrace(*tensors, *flags, gamma, lam)
    torch.testing.assert_close(found[0][:, 0], torch.tensor(targets, dtype=torch.float64))
    torch.testing.assert_close(found[1][:, 0], torch.tensor(advantages, dtype=torch.float64))


def learner_with_stale_data(config):
    """A learner one update ahead of the rollout that it takes, and the loop around it."""
    torch.manual_seed(0)
    loop = PlainLoop(Pendulum(num_envs=4, max_steps=5), config, rollout_mode="async")
    stale = loop.collect()
    loop.iterate()
    return loop, stale


@pytest.mark.parametrize("config", [ppo_config(), recurrent_config()], ids=["mlp", "lstm"])
def test_a_rollout_of_older_weights_is_learned_from_with_its_importance_ratios(config):
    loop, stale = learner_with_stale_data(config)
    loop.learner.update_dataset(stale)
    storage = loop.learner.algo.storage
    current = storage.actions_log_prob.squeeze(-1)
    assert not torch.equal(current, torch.as_tensor(stale.steps["log_prob"]))
    ratio = torch.exp(current - torch.as_tensor(stale.steps["log_prob"]))
    metrics = loop.learner.train()
    assert metrics["training/weights_lag"] == 1.0
    assert metrics["training/importance_ratio"] == pytest.approx(float(ratio.mean()))
    assert 0.0 < metrics["training/importance_clipped"] < 1.0


@pytest.mark.parametrize("config", [ppo_config(), recurrent_config()], ids=["mlp", "lstm"])
def test_the_correction_of_a_current_rollout_changes_no_value_target(config):
    from dressage.policy.rsl_rl_policy import fragments, off_policy

    torch.manual_seed(0)
    loop = PlainLoop(Pendulum(num_envs=4, max_steps=5), config, rollout_mode="async")
    loop.iterate()
    fragment = loop.collect()
    loop.learner.update_dataset(fragment)
    algorithm = loop.learner.algo
    returns = algorithm.storage.returns.clone()
    with torch.inference_mode():
        steps, last, finals = fragments.join([fragment], "cpu")
        found = off_policy.correct(algorithm, steps, last, finals)
    assert found.mean_ratio == pytest.approx(1.0, abs=1e-5)
    torch.testing.assert_close(algorithm.storage.returns, returns, atol=1e-4, rtol=1e-4)


def test_a_student_is_not_taught_by_older_weights(tmp_path):
    loop = PlainLoop(Pendulum(num_envs=4), distillation_config(), rollout_mode="async")
    fragment = loop.collect()
    loop.learner.version = 1
    with pytest.raises(StaleWeightsError, match="Distillation learns from current weights alone"):
        loop.learner.update_dataset(fragment)


def test_weights_of_the_future_are_refused():
    loop = PlainLoop(Pendulum(num_envs=4), ppo_config(), rollout_mode="async")
    loop.actor.version = 3
    transitions = []
    for _ in range(loop.learner.num_steps):
        response = loop.actor.rollout_step(loop.env_ret)
        loop.env_ret = loop.env.step(response.action)
        transitions.append(loop.actor.postprocess(loop.env_ret, response))
    with pytest.raises(StaleWeightsError, match="weights of version 3, and the learner has version 0"):
        loop.learner.update_dataset(loop.actor.close_fragment(transitions, loop.env_ret))
