"""What a ParallelEnv may do and what the learner makes of it: who is a sample, what bootstraps."""

import jax
import numpy as np
import pytest
from gymnasium import spaces

from dressage.errors import EnvironmentContractError
from dressage.learning.proximal import ProximalLearner
from dressage.networks import apply_value
from dressage.rl.ippo import IPPO
from tests.rl.rl_toys import SMALL, Script, assert_equal

STEPS = 6
ONE_COPY = {**SMALL, "num_envs": 1, "rollout_length": STEPS}
ALL = {"agents": "ab"}

prepare = jax.jit(ProximalLearner.prepare)
value = jax.jit(apply_value, static_argnums=0)


class Collected:
    """A rollout of `STEPS` steps of one copy, before it is learned from."""

    def __init__(self, env, **options):
        learner = IPPO({**ONE_COPY, **options})
        prepared = learner.prepare(env)
        self.groups = learner.make_groups(prepared, 0)
        collector = prepared.make_run(self.groups, (0,))._collector
        self.state = collector.init(0)
        self.env = env
        self.resets_before = env.resets
        self.rollout = collector.collect(self.state, STEPS)
        self.outcome = self.rollout.records[0].outcome
        (self.group,) = self.groups

    def rows(self, field, agent):
        """Return `[T]` of what one agent's outcome says."""
        return np.asarray(getattr(self.outcome, field))[:, "ab".index(agent), 0]

    def returns(self, agent):
        """Return `[T]` targets of the critic."""
        place = "ab".index(agent)
        records = jax.tree.map(lambda leaf: leaf[:, place], self.rollout.records[0])
        state = self.group.agent_state(self.state.agents[0], place)
        return np.asarray(prepare(self.group.learner, state, records)[0].returns)

    def value(self, agent, observation):
        """Return the critic's value of an observation."""
        state = self.group.agent_state(self.state.agents[0], "ab".index(agent))
        return float(value(self.group.learner.network, state.params, np.array(observation, np.float32)))


def test_an_agent_that_terminates_early_is_no_sample_afterwards_and_the_other_goes_on():
    alone, over = {"agents": "b"}, {"agents": "", "term": "b"}
    script = [ALL, ALL, {"agents": "b", "term": "a"}, alone, alone, over]
    ran = Collected(Script([*script, ALL]))
    assert ran.rows("valid", "a").tolist() == [True, True, False, False, False, True]
    assert ran.rows("valid", "b").tolist() == [True] * 6
    assert [sorted(actions) for actions in ran.env.sent] == [["a", "b"]] * 2 + [["b"]] * 3 + [["a", "b"]]
    assert ran.env.resets == ran.resets_before + 1  # Behind the fifth step, when `b` ended too.
    assert ran.returns("a")[1] == 1.0  # The last reward alone: nothing is bootstrapped.
    assert ran.returns("b")[4] == 1.0
    assert ran.rows("copy_ends", "a").tolist() == [False] * 4 + [True, False]


def test_of_two_that_end_together_only_the_truncated_one_bootstraps():
    ran = Collected(Script([ALL, ALL, {"agents": "", "trunc": "a", "term": "b"}]))
    assert ran.env.resets == ran.resets_before + 3
    gamma = 0.99
    assert ran.returns("a")[1] == pytest.approx(1 + gamma * ran.value("a", [2, 0]), abs=1e-5)
    assert ran.returns("b")[1] == 1.0
    assert ran.value("a", [2, 0]) != 0


def test_an_agent_that_vanishes_and_comes_back_has_two_trajectories_with_nothing_between():
    gone = {"agents": "b", "silent": "a"}
    ran = Collected(Script([ALL, ALL, gone, {"agents": "b"}, ALL, ALL, ALL]))
    # Step 2, in which it vanished, led to nothing that was seen: no sample. Step 3 it missed.
    assert ran.rows("valid", "a").tolist() == [True, False, False, False, True, True]
    assert [sorted(actions) for actions in ran.env.sent[2:4]] == [["b"], ["b"]]
    first = 1 + 0.99 * ran.value("a", [1, 0])
    assert ran.returns("a")[0] == pytest.approx(first, abs=1e-5)
    assert ran.rows("episode_lengths", "a").tolist()[4:] == [1, 2]


def test_what_an_agent_remembers_starts_anew_when_it_comes_back():
    gone = {"agents": "a", "silent": "b"}
    ran = Collected(Script([ALL, ALL, gone, {"agents": "a"}, ALL, ALL, ALL]), recurrent=True)
    actor = np.asarray(ran.rollout.records[0].observed.memory[0])  # before each step, [T, A, B, units]
    known = actor.any(axis=(2, 3))
    assert known[:, 1].tolist() == [False, True, False, False, False, True]
    # What `a` sees first is all zeros, and so is what it then remembers.
    assert known[:, 0].tolist() == [False, False, True, True, True, True]


@pytest.mark.parametrize("listed", ["", "ab"])
def test_an_episode_ends_by_flags_or_by_an_empty_list(listed):
    ran = Collected(Script([ALL, ALL, {"agents": listed, "term": "ab"}]))
    assert ran.rows("copy_ends", "a").tolist() == [False, True] * 3
    assert ran.env.resets == ran.resets_before + 3


def test_the_order_of_agents_and_dicts_changes_nothing():
    script = [ALL, ALL, {"agents": "b", "term": "a"}, {"agents": "", "trunc": "b"}]
    ordered, reversed_ = (Collected(Script(script, order=order)) for order in (1, -1))
    assert_equal(ordered.rollout.records, reversed_.rollout.records)


def test_an_end_in_the_last_row_takes_nothing_from_the_next_rollout():
    script = [ALL] * STEPS + [{"agents": "", "term": "a", "trunc": "b"}]
    ran = Collected(Script(script))
    assert ran.returns("a")[-1] == pytest.approx(1.0, abs=1e-6)
    assert ran.returns("b")[-1] == pytest.approx(1 + 0.99 * ran.value("b", [6, 1]), abs=1e-5)


def test_unlike_agents_have_groups_of_their_own_without_padding():
    observed = {"a": spaces.Box(-1, 1, (3,)), "b": spaces.Box(-1, 1, (5,))}
    acted = {"a": spaces.Discrete(2), "b": spaces.MultiDiscrete([3, 2])}
    learner = IPPO(ONE_COPY)
    prepared = learner.prepare(Script([ALL, ALL], observation_spaces=observed, action_spaces=acted))
    sizes = [(one.agents, one.spec.obs_dim, one.spec.action_dim) for one in prepared.groups]
    assert sizes == [(("a",), 3, 2), (("b",), 5, 5)]


def test_spaces_that_are_new_objects_at_each_call_are_equal_ones():
    class Fresh(Script):
        def observation_space(self, agent):
            return spaces.Box(-np.inf, np.inf, (2,))

        def action_space(self, agent):
            return spaces.Discrete(2)

    ran = Collected(Fresh([ALL] * 9))
    assert ran.group.agents == ("a", "b")
    assert ran.rows("valid", "a").all()


def test_an_environment_without_agents_is_refused():
    nobody = Script([ALL])
    nobody.possible_agents = []
    with pytest.raises(EnvironmentContractError, match="Script has no possible_agents"):
        IPPO(ONE_COPY).train(nobody, 6)
    with pytest.raises(EnvironmentContractError, match="reset gave no agent"):
        IPPO(ONE_COPY).train(Script([{"agents": ""}]), 6)


@pytest.mark.parametrize("lacking", [0, 1, 2, 3, 4])
def test_a_dict_that_does_not_speak_of_a_living_agent_is_named(lacking):
    class Forgetful(Script):
        def step(self, actions):
            returned = super().step(actions)
            del returned[lacking]["b"]
            return returned

    names = ("observations", "rewards", "terminations", "truncations", "infos")
    with pytest.raises(
        EnvironmentContractError, match=f"there is no entry for agent 'b' in {names[lacking]}; it has 'a'"
    ):
        IPPO(ONE_COPY).train(Forgetful([ALL] * 9), 6)


def test_an_agent_that_is_not_there_learns_nothing_and_the_other_learns_as_ever():
    absent = [{"agents": "a"}] * 200
    there = [ALL] * 7 + [{"agents": "a", "silent": "b"}] + [{"agents": "a"}] * 100
    both = [ALL] * 200
    results = {}
    for name, script in {"absent": absent, "there": there, "both": both}.items():
        learner, env = IPPO({**ONE_COPY, "learning_rate": 0.01}), Script(script)
        results[name] = [learner.train(env, STEPS), learner.train(env, 2 * STEPS)]
    fresh = IPPO({**ONE_COPY, "learning_rate": 0.01}).train(Script(absent), 0)
    never = results["absent"][1]
    assert_equal(never.agent_states["b"].params, fresh.agent_states["b"].params)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(never.agent_states["b"].params))
    assert_equal(never.agent_states["a"], results["both"][1].agent_states["a"])
    # Gone from the second rollout on, it keeps what it learned: Adam's momentum does not carry it further.
    before, after = (result.agent_states["b"] for result in results["there"])
    rows = results["there"][1].metrics["b"]
    assert rows[0]["gradient_norm"] > 0 and rows[2]["gradient_norm"] == 0
    assert_equal((after.params, after.opt_state), (before.params, before.opt_state))
    assert_equal(results["there"][1].agent_states["a"], results["both"][1].agent_states["a"])
    assert int(after.optimizer_steps) == int(before.optimizer_steps) * 3
