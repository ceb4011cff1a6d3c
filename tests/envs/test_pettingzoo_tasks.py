"""PettingZoo's environments and those with tuple spaces as tasks that make copies."""

import pickle
import sys
import types

import gymnasium
import numpy as np
import pytest
from pettingzoo import ParallelEnv

from dressage.envs import from_parallel_env, from_tuple_space, make, to_parallel_env
from dressage.envs.adapters.tuple_space import TupleSpaceEnv
from dressage.errors import ConfigError, EnvironmentContractError, MissingExtraError, UnsupportedSpaceError


def test_a_module_makes_copies_that_step_also_after_pickling():
    pytest.importorskip("mpe2")
    task = make("pettingzoo:mpe2.simple_speaker_listener_v4", max_cycles=3)
    env = pickle.loads(pickle.dumps(task))()
    assert isinstance(env, ParallelEnv) and env.possible_agents == ["speaker_0", "listener_0"]
    env.reset(seed=0)
    for _ in range(3):
        *_, truncated, _ = env.step({agent: env.action_space(agent).sample() for agent in env.agents})
    assert all(truncated.values()) and env.agents == []
    assert task.make("rgb_array").render_mode == "rgb_array"


def test_pettingzoos_own_environments_need_not_name_it():
    task = from_parallel_env("butterfly.cooperative_pong_v6")
    assert task.maker.module == "pettingzoo.butterfly.cooperative_pong_v6"


def corridor(num_agents):
    return to_parallel_env(make("corridor", num_agents=num_agents))


def test_a_function_of_ones_own_is_a_task_too():
    task = from_parallel_env(corridor, {"num_agents": 2})
    assert task.name == "corridor" and task().possible_agents == ["agent_0", "agent_1"]
    with pytest.raises(
        ConfigError, match=r"corridor refuses the options {'num_agents': 2, 'render_mode': 'x'}"
    ):
        task.make("x")
    with pytest.raises(EnvironmentContractError, match="dict must make a pettingzoo.ParallelEnv, got dict"):
        from_parallel_env(dict)()


@pytest.mark.parametrize(
    ("name", "match"),
    [
        (
            "mpe2.simple_spred_v3",
            "importing 'mpe2.simple_spred_v3' failed: .*Did you mean 'simple_spread_v3'",
        ),
        ("sisl.pursuit_v4", "importing 'pettingzoo.sisl.pursuit_v4' failed: .*Did you mean 'pursuit_v5'"),
        ("math", "the module 'math' has no function 'parallel_env'"),
        ("no_such_package.x", "importing 'pettingzoo.no_such_package.x' failed: No module named"),
    ],
)
def test_a_module_that_is_none_is_refused_by_name(name, match):
    pytest.importorskip("mpe2")
    with pytest.raises(ConfigError, match=f"pettingzoo:{name}: {match}"):
        make(f"pettingzoo:{name}")


def test_a_wrong_option_of_a_module_is_refused_before_anything_is_made():
    pytest.importorskip("mpe2")
    with pytest.raises(
        ConfigError, match="simple_spread_v3 has no option 'max_cycle'. Did you mean 'max_cycles'"
    ):
        make("pettingzoo:mpe2.simple_spread_v3", max_cycle=3)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("mpe2", "pettingzoo:mpe2.simple_v3"),
        ("lbforaging", "lbforaging:Foraging-8x8-2p-1f-v3"),
        ("rware", "rware:rware-tiny-2ag-v2"),
    ],
)
def test_a_missing_package_names_its_extra(module, name, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=rf"{module} cannot be imported .*'dressage\[envs\]'"):
        make(name)


class Pair(gymnasium.Env):
    """Two agents; ends itself after `length` steps and says `done` at its own limit of 4 as well."""

    observation_space = gymnasium.spaces.Tuple(
        [gymnasium.spaces.Box(-1, 9, (1,)), gymnasium.spaces.Discrete(9)]
    )
    action_space = gymnasium.spaces.Tuple([gymnasium.spaces.Discrete(2), gymnasium.spaces.Discrete(3)])
    max_steps = 4

    def __init__(self, length=9, rewards=2):
        self.length, self.rewards = length, rewards

    def reset(self, *, seed=None, options=None):
        self.steps = 0
        return self._observed(), {"seed": seed}

    def step(self, action):
        self.steps += 1
        self.received = action
        done = self.steps >= min(self.length, self.max_steps)
        return (
            self._observed(),
            [float(one) for one in action][: self.rewards],
            done,
            False,
            {"t": self.steps},
        )

    def _observed(self):
        return np.array([self.steps], np.float32), self.steps


def played(env):
    env.reset(seed=1)
    rows = []
    while env.agents:
        rows.append(env.step({"agent_1": 2, "agent_0": 1}))
    return rows


def test_a_tuple_of_agents_becomes_a_dict_of_them():
    env = TupleSpaceEnv(Pair(length=2))
    assert env.possible_agents == ["agent_0", "agent_1"]
    assert env.observation_space("agent_1") == gymnasium.spaces.Discrete(9)
    assert env.action_space("agent_1") is env.action_space("agent_1")
    observations, infos = env.reset(seed=3)
    assert observations["agent_0"].tolist() == [0] and infos == {"agent_0": {}, "agent_1": {}}
    observations, rewards, terminated, truncated, infos = env.step({"agent_1": 2, "agent_0": 1})
    assert env.env.received == (1, 2) and rewards == {"agent_0": 1.0, "agent_1": 2.0}
    assert observations["agent_1"] == 1 and infos["agent_1"] == {"t": 1}
    assert not any(terminated.values()) and not any(truncated.values())


@pytest.mark.parametrize(
    ("length", "max_steps", "steps", "ends"),
    [
        (2, None, 2, (True, False)),
        (9, None, 4, (False, True)),
        (9, 3, 3, (False, True)),
        (2, 3, 2, (True, False)),
    ],
)
def test_its_own_time_limit_truncates_and_an_earlier_end_terminates(length, max_steps, steps, ends):
    rows = played(TupleSpaceEnv(Pair(length), max_steps))
    _, _, terminated, truncated, _ = rows[-1]
    assert len(rows) == steps
    assert (set(terminated.values()), set(truncated.values())) == ({ends[0]}, {ends[1]})


def test_what_a_tuple_space_environment_gets_wrong_is_named():
    with pytest.raises(UnsupportedSpaceError, match="CartPole-v1 needs a Tuple space of observations"):
        TupleSpaceEnv(gymnasium.make("CartPole-v1"))
    env = TupleSpaceEnv(Pair(rewards=1))
    with pytest.raises(EnvironmentContractError, match="Call reset before step: Pair has no running episode"):
        env.step({})
    env.reset()
    with pytest.raises(EnvironmentContractError, match="Pair got no action for agent_1"):
        env.step({"agent_0": 0})
    with pytest.raises(EnvironmentContractError, match="Pair returned 1 items for 2 agents"):
        env.step({"agent_0": 0, "agent_1": 0})
    with pytest.raises(ConfigError, match="max_steps as an integer >= 1, got 0"):
        from_tuple_space(Pair, max_steps=0)
    with pytest.raises(ConfigError, match="an id with its package, package:id, got 'Foraging'"):
        from_tuple_space("Foraging")


def test_a_function_makes_a_tuple_space_task():
    task = from_tuple_space(Pair, {"length": 3}, max_steps=2)
    assert len(played(task())) == 2


@pytest.mark.parametrize(
    ("name", "limit"), [("lbforaging:Foraging-8x8-2p-1f-v3", 50), ("rware:rware-tiny-2ag-v2", 500)]
)
def test_foraging_and_the_warehouse_keep_their_own_limits_as_truncations(name, limit):
    pytest.importorskip(name.partition(":")[0])
    env = make(name)()
    assert env.max_steps == limit
    observations, _ = env.reset(seed=0)
    assert all(env.observation_space(agent).contains(observations[agent]) for agent in env.agents)
    _, rewards, *_ = env.step({agent: env.action_space(agent).sample() for agent in env.agents})
    assert all(isinstance(reward, float) for reward in rewards.values())
    with pytest.raises(ConfigError, match="has no environment 'nothing-v0'"):
        make(f"{name.partition(':')[0]}:nothing-v0")


def test_a_module_without_a_raw_environment_is_checked_when_it_makes_one(monkeypatch):
    module = types.ModuleType("bare_module_of_a_user")
    module.parallel_env = corridor
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: module)
    task = from_parallel_env(module.__name__, {"agents": 2})
    with pytest.raises(ConfigError, match="bare_module_of_a_user refuses the options {'agents': 2}"):
        task()
