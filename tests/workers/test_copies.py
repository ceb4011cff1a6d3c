"""What agents of a ParallelEnv may do, as arrays; every expected number is written down by hand."""

import numpy as np
import pytest
from gymnasium import spaces

from dressage.errors import EnvironmentContractError, EnvironmentRaisedError, NonFiniteError
from dressage.workers import make_workers, parallel_layout
from tests.workers.parallel_toys import AGENTS, Counting, Raising, Scripted


def seen(number):
    return np.array([number, -number], np.float32)


def both(a, b):
    return {"a": seen(a), "b": seen(b)}


def group_over(env, cost_key=None, cost_default=None):
    """One copy of a scripted environment; the layout is read off another, so that no episode is used up."""
    spare = Scripted([[both(0, 0)]], env.possible_agents, env.observation_spaces, env.action_spaces)
    layout = parallel_layout(spare, cost_key=cost_key, cost_default=cost_default)
    return make_workers(lambda: env, 1, layout)


def play(env, steps, **options):
    """Return the first observation and the records of `steps` steps with action 1 for everyone."""
    group = group_over(env, **options)
    first = group.reset([5])
    records = [group.step([np.ones((2, 1), np.int64)]) for _ in range(steps)]
    return first[0], [record.groups[0] for record in records], [bool(record.ended[0]) for record in records]


def column(records, name):
    """Return one field of agents a and b over time, `[T][2]`."""
    return [getattr(record, name)[:, 0].tolist() for record in records]


def features(records, name="final_observation"):
    return [getattr(record, name)[:, 0, 0].tolist() for record in records]


DIES_FIRST = [
    [
        both(0, 10),
        {"obs": both(1, 11), "agents": AGENTS},
        {"obs": both(2, 12), "reward": {"a": -1.0, "b": 1.0}, "term": {"a": True}, "agents": ("b",)},
        {"obs": {"b": seen(13)}, "agents": ("b",)},
        {"obs": {"b": seen(14)}, "agents": ("b",)},
        {"obs": {"b": seen(15)}, "term": {"b": True}, "agents": ()},
    ],
    [both(20, 30), {"obs": both(21, 31), "agents": AGENTS}],
]


def test_an_agent_that_dies_leaves_the_other_to_finish_the_episode():
    env = Scripted(DIES_FIRST)
    first, records, ended = play(env, 6)
    assert first.features[:, 0, 0].tolist() == [0, 10]
    assert column(records, "alive_before") == [[True, True]] * 2 + [[False, True]] * 3 + [[True, True]]
    assert column(records, "terminated") == [
        [False] * 2,
        [True, False],
        *[[False] * 2] * 2,
        [False, True],
        [False] * 2,
    ]
    assert column(records, "truncated") == [[False, False]] * 6
    assert column(records, "reward") == [[1, 1], [-1, 1], [0, 1], [0, 1], [0, 1], [1, 1]]
    assert features(records) == [[1, 11], [2, 12], [0, 13], [0, 14], [0, 15], [21, 31]]
    assert ended == [False] * 4 + [True, False]
    assert [sorted(sent) for sent in env.sent] == [["a", "b"]] * 2 + [["b"]] * 3 + [["a", "b"]]
    assert env.seeds == [5, None]  # one seed, then the environment's own generator


def test_the_observation_to_act_on_after_an_episode_is_the_first_of_the_next():
    _, records, _ = play(Scripted(DIES_FIRST), 6)
    following = [record.observation.features[:, 0, 0].tolist() for record in records]
    assert following == [[1, 11], [0, 12], [0, 13], [0, 14], [20, 30], [21, 31]]
    assert column(records, "alive") == [[True, True], *[[False, True]] * 3, *[[True, True]] * 2]


def test_each_agents_return_and_length_are_those_of_its_own_part_of_the_episode():
    _, records, _ = play(Scripted(DIES_FIRST), 6)
    assert column(records, "episode_return") == [[1, 1], [0, 2], [0, 3], [0, 4], [0, 5], [1, 1]]
    assert column(records, "episode_length") == [[1, 1], [2, 2], [0, 3], [0, 4], [0, 5], [1, 1]]


def test_a_truncation_and_a_termination_in_one_step_reset_the_copy_once():
    last = {"obs": both(1, 11), "trunc": {"a": True}, "term": {"b": True}, "agents": ()}
    env = Scripted([[both(0, 10), last]])
    _, records, ended = play(env, 2)
    assert column(records, "truncated") == [[True, False]] * 2
    assert column(records, "terminated") == [[False, True]] * 2
    assert ended == [True, True]
    assert env.seeds == [5, None, None]
    assert column(records, "final_observation_missing") == [[False, False]] * 2


def test_an_agent_that_vanishes_without_a_flag_is_truncated_without_a_final_observation():
    env = Scripted(
        [
            [
                both(0, 10),
                {"obs": {"b": seen(11)}, "agents": ("b",)},
                {"obs": {"b": seen(12)}, "agents": ("b",)},
                {"obs": both(3, 13), "agents": AGENTS},
                {"obs": both(4, 14), "term": dict.fromkeys(AGENTS, True), "agents": ()},
            ]
        ]
    )
    first, records, ended = play(env, 4)
    assert column(records, "alive_before") == [[True, True], [False, True], [False, True], [True, True]]
    assert column(records, "truncated") == [[True, False], *[[False, False]] * 3]
    assert column(records, "final_observation_missing") == [[True, False], *[[False, False]] * 3]
    assert column(records, "alive") == [[False, True], [False, True], [True, True], [True, True]]
    assert records[2].observation.features[:, 0, 0].tolist() == [3, 13]  # it is back
    assert features(records) == [[0, 11], [0, 12], [0, 13], [4, 14]]
    assert column(records, "episode_length") == [[1, 1], [0, 2], [0, 3], [1, 4]]
    assert ended == [False, False, False, True]


def test_a_vanished_agent_whose_last_observation_is_there_is_an_ordinary_truncation():
    env = Scripted(
        [[both(0, 10), {"obs": both(1, 11), "agents": ("b",)}, {"obs": {"b": seen(12)}, "agents": ()}]]
    )
    _, records, ended = play(env, 2)
    assert column(records, "truncated") == [[True, False], [False, True]]
    assert column(records, "final_observation_missing") == [[False, False]] * 2
    assert features(records) == [[1, 11], [0, 12]]
    assert ended == [False, True]


def test_an_environment_that_goes_on_listing_its_dead_ends_by_their_flags():
    env = Scripted(
        [
            [
                both(0, 10),
                {"obs": both(1, 11), "term": {"a": True}, "agents": AGENTS},
                {"obs": both(2, 12), "agents": AGENTS},
                {"obs": both(3, 13), "trunc": {"b": True}, "agents": AGENTS},
            ]
        ]
    )
    _, records, ended = play(env, 3)
    assert column(records, "alive_before") == [[True, True], [False, True], [False, True]]
    assert ended == [False, False, True]
    assert [sorted(sent) for sent in env.sent] == [["a", "b"], ["b"], ["b"]]


def test_the_order_of_dicts_and_of_agents_changes_nothing():
    def turned(entry):
        if "obs" not in entry:
            return dict(reversed(entry.items()))
        rows = {
            name: dict(reversed(one.items())) if isinstance(one, dict) else tuple(reversed(one))
            for name, one in entry.items()
        }
        return {
            **rows,
            "obs": {**rows["obs"], "__all__": "stray"},
            "info": {"__all__": {}, "b": {}, "a": {}},
            "reward": {"b": 1.0, "__all__": None, "a": 1.0},
        }

    _, straight, _ = play(Scripted(DIES_FIRST), 5)
    episodes = [[turned(entry) for entry in episode] for episode in DIES_FIRST]
    for entry in episodes[0][1:]:
        entry["reward"] = {**entry["reward"], "a": -1.0 if entry["obs"].get("a", [0])[0] == 2 else 1.0}
        acted = [agent for agent in entry["obs"] if agent != "__all__"]
        entry.setdefault("term", {})
        entry["obs"] = {agent: entry["obs"][agent] for agent in acted}
    _, swapped, _ = play(Scripted(episodes), 5)
    for name in ("final_observation", "reward", "terminated", "alive_before", "episode_return"):
        for one, other in zip(straight, swapped, strict=True):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.mark.parametrize("name", ["rewards", "terminations", "truncations", "infos", "observations"])
def test_a_living_agent_that_a_dict_forgets_is_an_error_that_names_agent_and_dict(name):
    class Forgetful(Scripted):
        def step(self, actions):
            returned = list(super().step(actions))
            names = ("observations", "rewards", "terminations", "truncations", "infos")
            del returned[names.index(name)]["b"]
            return tuple(returned)

    env = Forgetful([[both(0, 10), {"obs": both(1, 11), "agents": AGENTS}]])
    with pytest.raises(
        EnvironmentContractError, match=f"copy 0, step 0 .*no entry for agent 'b' in {name}; it has 'a'"
    ):
        play(env, 1)


def test_a_truncated_agent_without_a_final_observation_is_an_error():
    env = Scripted(
        [
            [
                both(0, 10),
                {
                    "obs": {"a": seen(1)},
                    "trunc": {"b": True},
                    "agents": ("a",),
                    "reward": dict.fromkeys(AGENTS, 1.0),
                    "info": {"a": {}, "b": {}},
                },
            ]
        ]
    )
    with pytest.raises(EnvironmentContractError, match="no entry for agent 'b' in observations"):
        play(env, 1)


def test_a_terminated_agent_needs_no_final_observation():
    env = Scripted(
        [
            [
                both(0, 10),
                {
                    "obs": {"a": seen(1)},
                    "term": {"b": True},
                    "agents": ("a",),
                    "reward": dict.fromkeys(AGENTS, 1.0),
                    "info": {"a": {}, "b": {}},
                },
            ]
        ]
    )
    _, records, _ = play(env, 1)
    assert column(records, "terminated") == [[False, True]]
    assert column(records, "final_observation_missing") == [[False, False]]


def test_a_reset_without_agents_is_an_error():
    with pytest.raises(
        EnvironmentContractError, match=r"copy 0, step 0 .*reset gave no agent: env.agents is \[\]"
    ):
        play(Scripted([[{}]]), 0)


def test_costs_are_read_by_their_key_also_in_the_last_step():
    info = {"a": {"cost": np.array([2.0])}, "b": {"cost": True}}
    last = {"obs": both(1, 11), "term": dict.fromkeys(AGENTS, True), "agents": (), "info": info}
    _, records, _ = play(Scripted([[both(0, 10), last]]), 1, cost_key="cost")
    assert column(records, "cost") == [[2, 1]]
    assert column(records, "episode_cost") == [[2, 1]]


def test_a_missing_cost_is_an_error_that_names_agent_and_key_and_those_present():
    info = {"a": {"cost": 0.0}, "b": {"fuel": 3.0}}
    env = Scripted([[both(0, 10), {"obs": both(1, 11), "agents": AGENTS, "info": info}]])
    with pytest.raises(
        EnvironmentContractError, match=r"info of agent 'b' has no cost 'cost'; it has \['fuel'\]"
    ):
        play(env, 1, cost_key="cost")


def test_a_missing_cost_may_have_a_default():
    env = Scripted([[both(0, 10), {"obs": both(1, 11), "agents": AGENTS}]])
    _, records, _ = play(env, 1, cost_key="cost", cost_default=0.5)
    assert column(records, "cost") == [[0.5, 0.5]]


@pytest.mark.parametrize("cost", [None, "high", np.zeros(2)])
def test_a_cost_that_is_no_number_is_an_error(cost):
    env = Scripted(
        [[both(0, 10), {"obs": both(1, 11), "agents": AGENTS, "info": {"a": {"cost": cost}, "b": {}}}]]
    )
    with pytest.raises(EnvironmentContractError, match="cost 'cost' of agent 'a' is .*not one number"):
        play(env, 1, cost_key="cost")


@pytest.mark.parametrize(
    ("field", "row", "words"),
    [
        ("reward", {"obs": both(1, 11), "reward": {"a": 1.0, "b": np.nan}}, "the reward of agent 'b' is nan"),
        (
            "obs",
            {"obs": {"a": seen(np.inf), "b": seen(0)}},
            r"final observation of agent 'a' \(component 0\) is inf",
        ),
        (
            "cost",
            {"obs": both(1, 11), "info": {"a": {"cost": 0}, "b": {"cost": np.inf}}},
            "cost 'cost' of agent 'b'",
        ),
    ],
)
def test_a_number_that_is_not_finite_is_an_error_that_names_copy_step_agent_and_field(field, row, words):
    fine = {"obs": both(1, 11), "agents": AGENTS}
    env = Scripted([[both(0, 10), fine, {**row, "agents": AGENTS}]])
    with pytest.raises(NonFiniteError, match=rf"copy 0, step 1 .*{words}"):
        play(env, 2, cost_key="cost", cost_default=0.0)
    assert field in str(row)


def test_an_observation_too_large_for_float32_is_an_error_not_infinity():
    env = Scripted([[both(0, 10), {"obs": {"a": np.array([1e300, 0.0]), "b": seen(0)}, "agents": AGENTS}]])
    with pytest.raises(NonFiniteError, match="too large for float32"):
        play(env, 1)


def test_large_finite_numbers_are_no_error():
    env = Scripted([[both(0, 10), {"obs": both(3e38, 3e38), "agents": AGENTS}]])
    _, records, _ = play(env, 1)
    assert features(records) == [[np.float32(3e38)] * 2]


def test_an_observation_of_another_shape_is_an_error_with_both_shapes():
    env = Scripted([[both(0, 10), {"obs": {"a": np.zeros(3), "b": seen(0)}, "agents": AGENTS}]])
    with pytest.raises(
        EnvironmentContractError, match=r"observation of agent 'a' has shape \(3,\); its space says \(2,\)"
    ):
        play(env, 1)


def test_an_exception_of_the_environment_names_copy_step_and_what_was_raised():
    with make_workers(Raising, 2) as group:
        group.reset([0, 1])
        group.step(zeros(group))
        with pytest.raises(
            EnvironmentRaisedError,
            match=r"copy 0, step 1 .*\(Raising\): step raised KeyError: 'no such wheel' "
            r"\(.*\.py:\d+, in raise_at_second_step\)",
        ) as caught:
            group.step(zeros(group))
    assert "raise_at_second_step" in caught.value.__notes__[0]


def zeros(group):
    """No-op actions of `Counting` for each of its two groups."""
    return [np.zeros((1, group.num_envs), np.int64), np.zeros((1, group.num_envs, 2))]


def test_actions_out_of_range_name_copy_agent_and_range():
    with make_workers(Counting, 2) as group:
        group.reset([0, 1])
        bad = zeros(group)
        bad[0][0, 1] = 2
        with pytest.raises(
            EnvironmentContractError,
            match=r"copy 1, step 0 .*action of agent 'a' is 2, .*integers from -1.0 to 1.0",
        ):
            group.step(bad)
        bad = zeros(group)
        bad[1][0, 0] = np.nan
        with pytest.raises(
            EnvironmentContractError, match=r"copy 0, step 0 .*action of agent 'b' is \[nan nan\]"
        ):
            group.step(bad)
        with pytest.raises(
            EnvironmentContractError, match=r"group \('a',\) must have shape \(1, 2\), got \(2,\)"
        ):
            group.step([np.zeros(2, np.int64), np.zeros((1, 2, 2))])
        group.step(zeros(group))  # a refused action has not hurt


def test_an_action_that_float32_carried_past_a_bound_is_put_onto_it():
    env = Scripted(
        [[both(0, 10), {"obs": both(1, 11), "agents": AGENTS}]],
        action_spaces=dict.fromkeys(AGENTS, spaces.Box(-0.3, 0.7, (1,), np.float64)),
    )
    group = group_over(env)
    group.reset([0])
    group.step([np.array([[[0.7]], [[-0.3]]], np.float32)])
    assert env.sent[0]["a"].tolist() == [float(np.float32(0.7))]  # within the bound
    assert env.action_space("a").contains(env.sent[0]["a"])
    assert env.sent[0]["b"].tolist() == [-0.3]  # float32 gives -0.30000001
    assert env.action_space("b").contains(env.sent[0]["b"])


def test_actions_given_for_absent_agents_are_not_looked_at():
    env = Scripted(DIES_FIRST)
    group = group_over(env)
    group.reset([0])
    for _ in range(2):
        group.step([np.ones((2, 1), np.int64)])
    group.step([np.array([[77], [1]])])
    assert env.sent[2] == {"b": 1}


def test_records_stay_as_they_are_when_the_group_goes_on():
    with make_workers(Counting, 2) as group:
        group.reset([0, 1])
        record = group.step(zeros(group))
        kept = record.groups[1].final_observation.copy(), record.groups[1].episode_return.copy()
        for _ in range(3):
            group.step(zeros(group))
        np.testing.assert_array_equal(record.groups[1].final_observation, kept[0])
        np.testing.assert_array_equal(record.groups[1].episode_return, kept[1])


def test_a_group_says_what_it_waits_for():
    group = make_workers(Counting, 1)
    with pytest.raises(RuntimeError, match="waits for reset"):
        group.step(zeros(group))
    group.reset([0])
    group.send(zeros(group))
    with pytest.raises(RuntimeError, match="waits for receive"):
        group.send(zeros(group))
    group.receive()
    group.close()
    with pytest.raises(RuntimeError, match="closed"):
        group.reset([0])


@pytest.mark.parametrize(
    ("dicts", "name"),
    [
        ({"obs": both(1, 11) | {"A": seen(0)}}, "observations"),
        ({"reward": {"a": 1.0, "b": 1.0, "A": 1.0}}, "rewards"),
        ({"term": {"a": False, "b": False, "A": True}}, "terminations"),
        ({"trunc": {"a": False, "b": False, "A": True}}, "truncations"),
    ],
)
def test_an_entry_of_an_unknown_agent_is_refused_with_the_nearest(dicts, name):
    steps = [both(0, 10), {"obs": both(1, 11), "agents": AGENTS} | dicts]
    text = f"{name} has an entry for 'A', which is none of the possible agents. Did you mean 'a'\\?$"
    with pytest.raises(EnvironmentContractError, match=text):
        play(Scripted([steps]), 1)


def test_an_unknown_agent_in_what_reset_gives_is_refused_too():
    env = Scripted([[both(0, 10) | {"c": seen(0)}]])
    with pytest.raises(
        EnvironmentContractError, match=r"observations of reset has an entry for 'c', which is"
    ):
        play(env, 0)


def test_dead_agents_that_are_still_listed_and_names_like_all_are_no_unknown_agents():
    flags = {"a": True, "b": False, "__all__": False}
    episode = [
        both(0, 10),
        {"obs": both(1, 11), "term": {"a": True}, "agents": ("b",)},
        {
            "obs": both(1, 12),
            "reward": {"a": 0.0, "b": 1.0},
            "term": flags,
            "trunc": {"a": False, "b": False},
            "agents": ("b",),
        },
    ]
    _, records, ended = play(Scripted([episode]), 2)
    assert column(records, "alive_before") == [[True, True], [False, True]]
    assert ended == [False, False]
