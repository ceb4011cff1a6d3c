"""Training that goes on from shipped policies of several agents."""

import dataclasses

import numpy as np
import pytest

from dressage.errors import ConfigError
from dressage.export import export_policies, load_policies
from dressage.rl.icpo import CPO
from dressage.rl.ippo import IPPO
from dressage.rl.ippo_lag import IPPO_Lagrangian
from dressage.rl.policy_set import PolicySet
from dressage.rl.trainer import MultiAgentTrainer
from tests.rl.constrained_toys import Toll
from tests.rl.rl_toys import AGENTS, SMALL, Relay, Script, assert_equal, largest_difference

UPDATE = 8
"""Environment steps of one update with `SMALL`."""
NORMALIZED = SMALL | {"normalize_observations": True}
KINDS = {
    "own networks": NORMALIZED,
    "one shared network": NORMALIZED | {"share_parameters": True},
    "recurrent": SMALL | {"recurrent": True},
}


def trainer_of(config, seeds=(0,), env=None, learner=IPPO):
    return MultiAgentTrainer(learner(config), Relay() if env is None else env, 2 * UPDATE, seeds, 0)


@pytest.fixture(scope="module")
def trained():
    """Policies of each kind; those with networks of their own after two updates."""
    trainers = {kind: trainer_of(config) for kind, config in KINDS.items()}
    states = {kind: trainer.init() for kind, trainer in trainers.items()}
    own = "own networks"
    states[own], _ = trainers[own].advance(states[own], 2)
    return {kind: trainer.policy(states[kind]) for kind, trainer in trainers.items()}


def shipped(policies, folder):
    """The same policies after a journey through files."""
    export_policies(policies.policies, folder, format="safetensors", critic=True)
    return PolicySet(load_policies(folder), "IPPO", {})


def networks(policies):
    return {agent: policy.params["network"] for agent, policy in policies.policies.items()}


def moments(policies):
    return {agent: policy.params["moments"] for agent, policy in policies.policies.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_training_starts_from_every_agents_own_policy_in_every_seed(trained, tmp_path, kind):
    policies = shipped(trained[kind], tmp_path)
    trainer = trainer_of(KINDS[kind], seeds=(3, 4))
    state = trainer.start_from(trainer.init(), policies)
    for index in (0, 1):
        started = trainer.policy(state, index)
        assert_equal(networks(started), networks(trained[kind]))
        assert_equal(moments(started), moments(trained[kind]))


@pytest.mark.slow
def test_seeds_that_start_alike_go_their_own_ways(trained):
    trainer = trainer_of(NORMALIZED, seeds=(3, 4))
    state = trainer.start_from(trainer.init(), trained["own networks"])
    state, _ = trainer.advance(state, 1)
    one, other = (networks(trainer.policy(state, index)) for index in (0, 1))
    assert 0 < largest_difference(one, networks(trained["own networks"])) < 0.05
    assert largest_difference(one, other) > 0


def test_statistics_go_on_counting_or_begin_anew(trained, tmp_path):
    policies = shipped(trained["own networks"], tmp_path)
    counts = {}
    for keeps in (True, False):
        trainer = trainer_of(NORMALIZED)
        state = trainer.start_from(trainer.init(), policies, keep_statistics=keeps)
        state, _ = trainer.advance(state, 1)
        counts[keeps] = [float(one.count) for one in moments(trainer.policy(state)).values()]
    before = [float(one.count) for one in moments(policies).values()]
    added = np.array(counts[True]) - before
    np.testing.assert_array_equal(added, counts[False])
    assert (added > 0).all() and (added <= UPDATE).all()


def test_optimisers_begin_anew(trained):
    trainer = trainer_of(NORMALIZED)
    fresh = trainer.init()
    started = trainer.start_from(trainer.init(), trained["own networks"])
    assert_equal(started[0].agents[0].opt_state, fresh[0].agents[0].opt_state)


def test_policies_without_critics_get_fresh_ones(trained):
    actors = PolicySet(
        {agent: without_critic(policy) for agent, policy in trained["own networks"].policies.items()}, "", {}
    )
    trainer = trainer_of(NORMALIZED)
    fresh = networks(trainer.policy(trainer.init()))
    started = networks(trainer.policy(trainer.start_from(trainer.init(), actors)))
    for agent in AGENTS:
        own = trained["own networks"].policies[agent].params["network"]["params"]
        assert_equal(started[agent]["params"]["actor"], own["actor"])
        assert_equal(started[agent]["params"]["critic"], fresh[agent]["params"]["critic"])


def without_critic(policy):
    parts = policy.params["network"]["params"]
    kept = {name: part for name, part in parts.items() if name != "critic"}
    return dataclasses.replace(policy, params=policy.params | {"network": {"params": kept}})


@pytest.mark.slow
@pytest.mark.parametrize("learner", [IPPO_Lagrangian, CPO])
def test_a_learner_under_a_limit_goes_on_from_policies_that_were_trained_without(learner, tmp_path):
    free = trainer_of(SMALL, env=Toll())
    policies = shipped(free.policy(free.advance(free.init(), 1)[0]), tmp_path)
    small = {name: value for name, value in SMALL.items() if name in {o.name for o in learner.OPTIONS}}
    config = small | {"network": SMALL["network"], "cost_limit": 1.0}
    trainer = trainer_of(config, env=Toll(), learner=learner)
    state = trainer.start_from(trainer.init(), policies)
    assert_equal(networks(trainer.policy(state)), networks(policies))
    trainer.advance(state, 1)


def scripted():
    rows = [{"agents": AGENTS}, {"agents": AGENTS}, {"agents": (), "trunc": AGENTS}]
    return Script(rows)


def test_environments_on_the_host_go_on_too(tmp_path):
    trainer = trainer_of(SMALL, env=scripted)
    policies = shipped(trainer.policy(trainer.init()), tmp_path)
    other = trainer_of(SMALL, seeds=(1, 2), env=scripted)
    state = other.start_from(other.init(), policies)
    for index in (0, 1):
        assert_equal(networks(other.policy(state, index)), networks(policies))


# What is refused


def refused(policies, config=NORMALIZED, env=None):
    trainer = trainer_of(config, env=env)
    with pytest.raises(ConfigError) as caught:
        trainer.start_from(trainer.init(), policies)
    return str(caught.value)


def test_agents_without_policy_and_policies_without_agent_are_named(trained):
    policies = trained["own networks"].policies
    alone = PolicySet({"a": policies["a"]}, "", {})
    assert refused(alone).startswith("There is no policy for 'b'. The task has 'a', 'b'")
    more = PolicySet(policies | {"c": policies["a"]}, "", {})
    assert refused(more).startswith("There is no agent 'c'. The task has 'a', 'b'")


def test_another_space_is_named_with_both(trained):
    policies = trained["own networks"].policies
    narrow = dataclasses.replace(policies["b"], observation_space=scripted().observation_space("b"))
    text = refused(PolicySet(policies | {"b": narrow}, "", {}))
    assert text.startswith("The policy of agent 'b' was trained with observations in Box(-inf, inf, (2,)")
    assert "this environment has Box(-10.0, 10.0, (3,), float32)" in text


@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("own networks", SMALL, "normalize_observations is True there and False here"),
        (
            "own networks",
            NORMALIZED | {"network": {"hidden_sizes": (5,)}},
            r"network.hidden_sizes is (4,) there and (5,) here",
        ),
        ("recurrent", SMALL, "recurrent is True there and False here"),
        (
            "own networks",
            NORMALIZED | {"share_parameters": True},
            "share_parameters is False there and True here",
        ),
    ],
)
def test_other_options_are_named_with_both_values(trained, kind, config, message):
    assert message in refused(trained[kind], config)


def test_a_shared_network_may_become_the_agents_own(trained):
    trainer = trainer_of(NORMALIZED)
    state = trainer.start_from(trainer.init(), trained["one shared network"])
    assert_equal(networks(trainer.policy(state)), networks(trained["one shared network"]))
    params = state[0].agents[0].params["params"]["actor"]["Dense_0"]["kernel"]
    assert params.shape == (2, 3, 4)
    np.testing.assert_array_equal(params[0], params[1])


def test_policies_whose_networks_differ_are_refused_with_both_agents(trained):
    mixed = {"a": trained["own networks"].policies["a"], "b": trained["recurrent"].policies["b"]}
    text = refused(PolicySet(mixed, "", {}))
    assert "recurrent is True for agent 'b' and False for 'a'" in text
