"""JaxMARL behind our interface: its numbers, our ends; the final observation survives."""

import io
import sys
import warnings
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import MultiAgentVectorEnv, from_jaxmarl, make
from dressage.envs.adapters.jaxmarl import JaxMARLEnv
from dressage.envs.multi_agent_checks import check_multi_agent_environment
from dressage.envs.suite.safe_spread import SpreadState
from dressage.errors import ConfigError, EnvironmentContractError, MissingExtraError, UnsupportedSpaceError

pytest.importorskip("jaxmarl")
# Brax, which JaxMARL imports where it is installed, and a dependency of it say that they are not maintained.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Brax System:UserWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module")
def spread():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make("jaxmarl:MPE_simple_spread_v3")


def test_an_mpe_task_keeps_our_contract_and_its_own_time_limit(spread):
    assert isinstance(spread, JaxMARLEnv) and spread.max_steps == 25
    spaces = check_multi_agent_environment(spread)
    assert spaces.groups == (("agent_0", "agent_1", "agent_2"),)
    assert spaces.observation["agent_0"].shape == (18,) and spaces.action["agent_0"].n == 5


def test_an_episode_is_truncated_at_the_limit_and_its_final_observation_is_kept(spread):
    vector = MultiAgentVectorEnv(spread, 2)
    actions = dict.fromkeys(spread.possible_agents, jnp.tile(jnp.array([1, 4]), (30, 1)))
    state, first = jax.jit(vector.reset)(jax.random.key(0))
    _, steps = jax.jit(lambda s, a: jax.lax.scan(vector.step, s, a))(state, actions)
    record = steps.groups[0]
    assert np.flatnonzero(steps.ended[:, 0]).tolist() == [24]
    assert record.truncated[24].all() and not record.terminated.any()
    # Pushed left all the time: the velocity goes on to fall, and does not start from rest.
    assert (record.final_observation[24, :, 0, 0] < -1).all()
    assert (record.observation[24, :, 0, :2] == 0).all()
    assert first["agent_0"].shape == (2, 18)


def test_rewards_and_observations_are_jaxmarls_and_equal_ours(spread):
    ours, key = make("safe_spread"), jax.random.key(3)
    state, observations, _ = spread.reset(key)
    inner = state.inner
    mine = SpreadState(inner.p_pos[:3], inner.p_vel[:3], inner.p_pos[3:])
    step, peer, own = jax.jit(spread.step), jax.jit(spread.env.step_env), jax.jit(ours.step)
    for t in range(20):
        actions = {a: jnp.int32((t + i) % 5) for i, a in enumerate(ours.possible_agents)}
        expected, inner, expected_rewards, _, _ = peer(key, inner, actions)
        state, observations, rewards, *_ = step(state, actions)
        mine, seen, got, *_ = own(mine, actions)
        for agent in ours.possible_agents:
            np.testing.assert_array_equal(observations[agent], expected[agent])
            np.testing.assert_array_equal(rewards[agent], expected_rewards[agent])
            np.testing.assert_allclose(seen[agent], observations[agent], atol=1e-4)
            assert float(got[agent]) == pytest.approx(float(rewards[agent]), abs=1e-4)


class Peer:
    """A stand-in of JaxMARL's form whose agents are done at different steps; `a` dies, the limit is 4."""

    name = "peer"
    agents = ("a", "b")
    max_steps = 4

    def __init__(self):
        self.told = {"shaped": {"a": jnp.float32(1), "b": jnp.float32(2)}, "whole": jnp.float32(3)}

    def reset(self, key):
        return self._observed(jnp.int32(0)), jnp.int32(0)

    def step_env(self, key, state, actions):
        state = state + 1
        dones = {"a": state >= 2, "b": state >= 4, "__all__": state >= 4}
        return self._observed(state), state, {"a": 1.0, "b": jnp.int32(2)}, dones, self.told

    def _observed(self, state):
        return dict.fromkeys(self.agents, state[None])  # integers, although the space says float32

    def observation_space(self, agent):
        return Box(shape=(1,))

    def action_space(self, agent):
        return Discrete(2)


class Box(SimpleNamespace):
    low, high, dtype = -1.0, 9.0, np.float32


class Discrete(SimpleNamespace):
    def __init__(self, n):
        super().__init__(n=n)


def test_an_end_before_the_limit_terminates_and_one_at_the_limit_truncates():
    env = from_jaxmarl(Peer())
    check_multi_agent_environment(env)
    vector = MultiAgentVectorEnv(env, 1)
    state, _ = vector.reset(jax.random.key(0))
    actions = dict.fromkeys("ab", jnp.zeros((4, 1), jnp.int32))
    _, steps = jax.lax.scan(vector.step, state, actions)
    agents = jax.vmap(lambda step: step.agents)(steps)
    assert agents["a"].terminated[:, 0].tolist() == [False, True, False, False]
    assert agents["b"].truncated[:, 0].tolist() == [False, False, False, True]
    assert not agents["a"].truncated.any() and not agents["b"].terminated.any()
    assert agents["a"].alive_before[:, 0].tolist() == [True, True, False, False]
    assert agents["b"].info["shaped"][0, 0] == 2 and "whole" not in agents["b"].info
    assert steps.ended[:, 0].tolist() == [False, False, False, True]


def broken(change):
    peer = Peer()
    change(peer)
    return peer


def test_what_jaxmarl_gives_beyond_our_reach_is_named():
    wide = broken(lambda peer: setattr(peer, "_observed", lambda state: dict.fromkeys("ab", jnp.zeros(3))))
    with pytest.raises(
        EnvironmentContractError, match=r"jaxmarl:peer observes .*\(3,\) for a; its space says \(1,\)"
    ):
        from_jaxmarl(wide).reset(jax.random.key(0))
    odd = broken(lambda peer: setattr(peer, "action_space", lambda agent: SimpleNamespace()))
    with pytest.raises(
        UnsupportedSpaceError, match="SimpleNamespace of the action of a in jaxmarl:peer is not"
    ):
        from_jaxmarl(odd).action_space(None, "a")
    endless = broken(lambda peer: setattr(peer, "max_steps", None))
    with pytest.raises(ConfigError, match="jaxmarl:peer needs max_steps as an integer >= 1, got None"):
        from_jaxmarl(endless)
    with pytest.raises(ConfigError, match="made already cannot be given"):
        from_jaxmarl(Peer(), {"num_agents": 2})


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        (
            "jaxmarl:MPE_simple_spred_v3",
            {},
            "no environment 'MPE_simple_spred_v3'. Did you mean 'MPE_simple_spread_v3'",
        ),
        (
            "jaxmarl:MPE_simple_spread_v3",
            {"num_agent": 2},
            "no option 'num_agent'. Did you mean 'num_agents'",
        ),
        ("jaxmarl:MPE_simple_spread_v3", {"local_ratio": 2.0}, "refuses the options .*between 0.0 and 1.0"),
        ("jaxmarl:MPE_simple_spread_v3", {"max_steps": 0}, "needs max_steps as an integer >= 1, got 0"),
    ],
)
def test_wrong_names_and_options_are_refused(name, options, match):
    with pytest.raises(ConfigError, match=match):
        make(name, **options)


def test_options_reach_jaxmarl():
    env = make("jaxmarl:MPE_simple_spread_v3", num_agents=2, num_landmarks=2, max_steps=7, damping=0.5)
    assert env.possible_agents == ("agent_0", "agent_1") and env.max_steps == 7


def test_importing_jaxmarl_prints_nothing_and_leaves_the_streams_alone(monkeypatch):
    from dressage.envs.adapters import jaxmarl as adapter

    own, out, err = sys.__stdout__, io.StringIO(), io.StringIO()

    def rude(module, extra):
        print("Importing submoduled environments...", file=sys.__stdout__)
        sys.stdout, sys.stderr = sys.__stdout__, sys.__stderr__
        return SimpleNamespace(registered_envs=[])

    monkeypatch.delitem(sys.modules, "jaxmarl")
    monkeypatch.setattr(adapter, "import_extra", rude)
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    with pytest.raises(ConfigError, match="jaxmarl has no environment 'x'"):
        from_jaxmarl("x")
    assert (sys.stdout, sys.stderr, sys.__stdout__) == (out, err, own) and out.getvalue() == ""


def test_a_missing_jaxmarl_names_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    with pytest.raises(
        MissingExtraError, match=r"jaxmarl cannot be imported .*pip install 'dressage\[envs\]'"
    ):
        from_jaxmarl("MPE_simple_spread_v3")
