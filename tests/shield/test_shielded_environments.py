"""Shields around environments: augmented spaces, what info tells, the host's twin, what is refused."""

import warnings
from dataclasses import dataclass

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from dressage.envs import MultiAgentEnv, check_multi_agent_environment, make, render, to_parallel_env
from dressage.envs.spaces import Box, Discrete
from dressage.errors import ConfigError, EnvironmentContractError, UnsupportedSpaceError
from dressage.learning.policy_head import PolicyHead
from dressage.learning.specs import agent_spec
from dressage.shield import (
    BarrierShield,
    MaskShield,
    ProbabilisticShield,
    SampledBarrier,
    ShieldedParallelEnv,
    shielded,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # PettingZoo's tests import its own old names
    from pettingzoo.test import parallel_api_test as check_parallel_api


@dataclass(frozen=True)
class Dial(MultiAgentEnv):
    """Three agents turn a dial each: two by -1, 0 or 1, one by any number; all observe all dials."""

    max_steps: int = 6
    possible_agents: tuple[str, ...] = ("ann", "bob", "eve")

    def reset(self, rng):
        state = jnp.zeros(3)
        return (
            state,
            dict.fromkeys(self.possible_agents, state),
            {agent: {} for agent in "ann bob eve".split()},
        )

    def step(self, state, actions):
        turns = jnp.stack([jnp.asarray(actions[a], jnp.float32).reshape(()) for a in self.possible_agents])
        state = state + turns
        no = dict.fromkeys(self.possible_agents, jnp.asarray(False))
        rewards = dict(zip(self.possible_agents, turns, strict=True))
        infos = {agent: {"cost": jnp.abs(state[i])} for i, agent in enumerate(self.possible_agents)}
        return state, dict.fromkeys(self.possible_agents, state), rewards, no, no, infos

    def observation_space(self, state, agent):
        return Box(-np.inf, np.inf, (3,))

    def action_space(self, state, agent):
        return Box(-2.0, 2.0, (1,)) if agent == "eve" else Discrete(3, start=-1)


def near_zero(seen):
    """The risk of turning down, staying, turning up, where the first dial may not pass ±1."""
    return jnp.abs(seen[0] + jnp.array([-1.0, 0.0, 1.0])) > 1.0


# eve's dial may not pass 1.
MASK = MaskShield(near_zero)
BELOW_ONE = BarrierShield(
    SampledBarrier(lambda x, u: x + u, lambda x: 1.0 - x, lambda x: jnp.zeros(1), 1.0), (-2.0,), (2.0,)
)


def view(source, observation, agent):
    return observation[2:] if agent == "eve" else observation


def dials():
    return shielded(Dial(), {"ann": MASK, "eve": BELOW_ONE}, view)


def test_the_augmented_spaces_hold_a_proposal_and_the_shields_parameters():
    env = dials()
    check_multi_agent_environment(env)
    state, _, _ = env.reset(jax.random.key(0))
    ann, bob, eve = (env.action_space(state, agent) for agent in env.possible_agents)
    endless = gymnasium.spaces.Box(-np.inf, np.inf, (1,))
    assert ann == gymnasium.spaces.Dict({"action": gymnasium.spaces.Discrete(3, start=-1), "shield": endless})
    assert bob == Discrete(3, start=-1)
    assert eve == gymnasium.spaces.Box(-np.inf, np.inf, (2,))
    fixed = BarrierShield(BELOW_ONE.constraint, (-2.0,), (2.0,), gain=1.0)
    plain = shielded(Dial(), {"eve": fixed}, view)
    assert plain.action_space(plain.reset(jax.random.key(0))[0], "eve") == gymnasium.spaces.Box(-2, 2, (1,))


def test_a_parameterized_policys_action_goes_in_as_it_is():
    env = dials()
    space = env.agents["ann"].action_space
    spec = agent_spec("ann", gymnasium.spaces.Box(-np.inf, np.inf, (3,)), space)
    assert (spec.action_kind, spec.action_nvec, spec.action_start, spec.continuous_dim) == (
        "parameterized",
        (3,),
        (-1,),
        1,
    )
    head = PolicyHead(spec)
    # The third choice is a turn by +1, twice; the second time the shield has it stay.
    action = head.environment_action((jnp.array([2]), jnp.array([5.0])))
    action = jax.tree.map(
        lambda part, shape: jnp.reshape(part, shape), action, {"action": (), "shield": (1,)}
    )
    state, _, _ = env.reset(jax.random.key(0))
    step = jax.jit(env.step)
    executed, told = [], []
    for _ in range(2):
        given = {"ann": action, "bob": jnp.int32(1), "eve": jnp.array([0.5, 0.0])}
        state, _, _, _, _, infos = step(state, given)
        executed.append(int(infos["ann"]["executed_action"]))
        told.append([float(infos["ann"][key]) for key in ("shield_intervened", "shield_rate")])
    assert executed == [1, 0]
    assert told == [[0, 0], [1, 0.5]]
    assert state.inner.tolist()[:2] == [1, 2]


def test_who_wears_no_shield_is_told_nothing_of_one():
    env = dials()
    state, _, _ = env.reset(jax.random.key(0))
    given = {"ann": {"action": 1, "shield": jnp.zeros(1)}, "bob": 1, "eve": jnp.array([2.0, 0.0])}
    _, _, _, _, _, infos = jax.jit(env.step)(state, given)
    assert set(infos["bob"]) == {"cost"}
    assert {"shield_intervened", "shield_infeasible", "shield_rate", "executed_action"} < set(infos["eve"])
    # 1 - x may fall to exp(-softplus(0)) = 1/2 of itself.
    np.testing.assert_allclose(infos["eve"]["executed_action"], [0.5], atol=1e-5)


def test_a_shields_memory_follows_the_observation():
    env = make("shielded_risk_ladder", bound=0.08)
    state, observations, _ = env.reset(jax.random.key(0))
    assert observations["agent"].shape == (11,)
    assert observations["agent"].tolist() == [1] + [0] * 9 + [1]
    state, observations, *_ = jax.jit(env.step)(
        state, {"agent": {"action": jnp.int32(0), "shield": jnp.zeros(1)}}
    )
    shield = env.agents["agent"].shield
    rung = int(state.inner.rung)
    left = (0.08 - shield.action_probability[0, 0]) / (1 - shield.violation[0, 0])
    expected = (shield.least_probability[rung] + left) / 0.08
    np.testing.assert_allclose(observations["agent"][-1], expected, rtol=1e-4)
    space = env.observation_space(state, "agent")
    assert space.shape == (11,) and space.high[-1] == np.inf and space.low[-1] == 0


def rung_of(source, observation, agent):
    return jnp.argmax(observation[:10])


def ladders():
    """A functional environment with its shields, and the host's face with the same ones."""
    ladder = make("shielded_risk_ladder")
    return ladder, ShieldedParallelEnv(to_parallel_env(make("risk_ladder")), ladder.shields, rung_of)


def two_dials():
    """The same of the dials."""
    return dials(), ShieldedParallelEnv(to_parallel_env(Dial()), {"ann": MASK, "eve": BELOW_ONE}, view)


def check_equal(told, wanted):
    """Compare nested dicts of numbers by their keys and values."""
    assert set(told) == set(wanted)
    for key, value in wanted.items():
        if isinstance(value, dict):
            check_equal(told[key], value)
        else:
            np.testing.assert_allclose(told[key], value, rtol=1e-5, err_msg=key)


def check_episode(host, face, seed):
    """Play an episode of both with the same random actions."""
    seen, expected = host.reset(seed=seed)[0], face.reset(seed=seed)[0]
    while face.agents:
        assert host.agents == face.agents
        check_equal(seen, expected)
        assert all(host.observation_space(agent).contains(row) for agent, row in seen.items())
        actions = {agent: host.action_space(agent).sample() for agent in face.agents}
        seen, *told = host.step(actions)
        expected, *wanted = face.step(actions)
        for one, other in zip(told, wanted, strict=True):
            check_equal(one, other)


@pytest.mark.parametrize("pair", [ladders, two_dials])
def test_the_hosts_twin_decides_and_tells_the_same(pair):
    env, host = pair()
    face = to_parallel_env(env)
    for agent in face.possible_agents:
        assert host.action_space(agent) == face.action_space(agent)
        assert host.observation_space(agent) == face.observation_space(agent)
        host.action_space(agent).seed(3)
    for seed in range(4):
        check_episode(host, face, seed)


def test_both_twins_pass_pettingzoos_test():
    check_parallel_api(to_parallel_env(dials()), num_cycles=30)
    check_parallel_api(two_dials()[1], num_cycles=30)


def test_executed_actions_lie_in_the_environments_own_space():
    host = two_dials()[1]
    host.reset(seed=0)
    inner = {agent: host.env.action_space(agent) for agent in ("ann", "eve")}
    for seed in range(30):
        if not host.agents:
            host.reset(seed=seed)
        infos = host.step({agent: host.action_space(agent).sample() for agent in host.agents})[-1]
        assert all(inner[agent].contains(infos[agent]["executed_action"][()]) for agent in inner)


def test_a_shielded_environment_can_be_drawn():
    env = make("shielded_risk_ladder")
    assert render(env, env.reset(jax.random.key(0))[0]).shape == (352, 288, 3)


@pytest.mark.parametrize(
    ("build", "error", "match"),
    [
        (
            lambda: shielded(Dial(), {"anne": MASK}),
            ConfigError,
            "'anne', which is no agent of this environment. Did you mean 'ann'",
        ),
        (
            lambda: shielded(Dial(), {}),
            ConfigError,
            "Give at least one shield: one for all of ann, bob, eve, or a dict by agent; got {}",
        ),
        (
            lambda: shielded(Dial(), {"ann": MaskShield}),
            ConfigError,
            "The shield of agent 'ann' must be a MaskShield, .*got <class",
        ),
        (
            lambda: shielded(to_parallel_env(Dial()), {"ann": MASK}),
            ConfigError,
            r"takes a functional environment .*, got ParallelFace. ShieldedParallelEnv\(",
        ),
        (
            lambda: ShieldedParallelEnv(Dial(), {"ann": MASK}),
            ConfigError,
            r"wraps a PettingZoo ParallelEnv, got the functional Dial: shielded\(env",
        ),
        (
            lambda: ShieldedParallelEnv(object(), {"ann": MASK}),
            EnvironmentContractError,
            "object has no possible_agents. Give a PettingZoo ParallelEnv",
        ),
        (lambda: shielded(Dial(), MASK), UnsupportedSpaceError, "agent 'eve' acts in Box"),
        (
            lambda: ShieldedParallelEnv(to_parallel_env(Dial()), BELOW_ONE),
            UnsupportedSpaceError,
            "agent 'ann' acts in Discrete",
        ),
    ],
)
def test_a_shield_that_fits_nobody_is_refused(build, error, match):
    with pytest.raises(error, match=match):
        build()


def test_memory_needs_an_observation_that_is_a_row():
    class Square(Dial):
        def observation_space(self, state, agent):
            return gymnasium.spaces.Box(-1, 1, (1, 3))

    chain = ProbabilisticShield(np.zeros((1, 3)), np.ones((1, 3, 1)), 0.5)
    with pytest.raises(UnsupportedSpaceError, match="adds 1 to the observation, .* agent 'ann' observes Box"):
        shielded(Square(), {"ann": chain})


def test_an_agent_that_was_shown_nothing_cannot_act_on_the_host():
    host = ShieldedParallelEnv(to_parallel_env(Dial()), {"ann": MASK}, view)
    with pytest.raises(EnvironmentContractError, match="Agent 'ann' acts, but was shown no observation"):
        host.step({"ann": {"action": 0, "shield": np.zeros(1, np.float32)}})


PLAIN = {"ann": 1, "bob": 0, "eve": np.zeros(2, np.float32)}
WITH_NUMBER = {"action": 1, "shield": np.zeros(1, np.float32)}


@pytest.mark.parametrize(
    ("agent", "action", "text"),
    [
        (
            "ann",
            1,
            "MaskShield of agent 'ann' takes 1 number .* one of Discrete.*; got one number. So .*a threshold",
        ),
        ("ann", {"action": 1}, "'ann' .*; got a dict of 'action'"),
        ("ann", WITH_NUMBER | {"gain": 1.0}, "'ann' .*; got a dict of 'action', 'gain', 'shield'"),
        ("ann", WITH_NUMBER | {"shield": np.zeros(2)}, r"'ann' .*; got numbers of shape \(2,\)"),
        ("ann", WITH_NUMBER | {"action": np.ones(2, int)}, r"'ann' .*; got a proposal of shape \(2,\)"),
        (
            "eve",
            np.zeros(1, np.float32),
            r"BarrierShield of agent 'eve' .*give 2 in a row, the 1 of .*a gain",
        ),
        ("eve", WITH_NUMBER, "'eve' .*; got "),
    ],
)
@pytest.mark.parametrize("twin", [0, 1], ids=["compiled", "host"])
def test_an_action_without_the_shields_number_is_refused_with_what_to_give(twin, agent, action, text):
    env, host = two_dials()
    given = PLAIN | {"ann": WITH_NUMBER} | {agent: action}
    if twin == 0:
        state, _, _ = env.reset(jax.random.key(0))
        with pytest.raises(EnvironmentContractError, match=text):
            env.step(state, given)
        return
    host.reset(seed=0)
    with pytest.raises(EnvironmentContractError, match=text):
        host.step(given)


def test_a_shield_without_numbers_of_its_own_takes_no_dict():
    env = shielded(Dial(), {"ann": MaskShield(near_zero, threshold=0.5)})
    state, _, _ = env.reset(jax.random.key(0))
    with pytest.raises(EnvironmentContractError, match="Agent 'ann' acts in Discrete.*proposal alone, got"):
        env.step(state, PLAIN | {"ann": WITH_NUMBER, "eve": np.zeros(1, np.float32)})


def test_a_shield_of_states_says_whose_view_shows_something_else():
    ladder = make("risk_ladder")
    shields = make("shielded_risk_ladder").shields
    env = shielded(ladder, shields)
    state, _, _ = env.reset(jax.random.key(0))
    text = r"ProbabilisticShield of agent 'agent' must be shown the index .* float32 of shape \(10,\)"
    with pytest.raises(EnvironmentContractError, match=text):
        env.step(state, {"agent": WITH_NUMBER})


def test_the_face_of_a_shielded_environment_names_who_acts_behind_a_shield():
    assert to_parallel_env(dials()).shielded_agents == ("ann", "eve")
    assert to_parallel_env(Dial()).shielded_agents == ()
