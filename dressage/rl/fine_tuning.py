"""Going on with the training of the shipped policies of all agents, in their own task or in another."""

import itertools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from dressage.errors import ConfigError
from dressage.learning.architecture import Architecture
from dressage.learning.fine_tuning import with_policy
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.records import AgentState, LearnerState
from dressage.rl.adapters import PolicyAdapter
from dressage.rl.deployment import architecture_of
from dressage.rl.policy_set import PolicySet


def options_of(policies: Mapping[str, PolicyAdapter]) -> dict[str, Any]:
    """Return the options that policies were made with, as far as their networks show them.

    Args:
        policies: By agent, at least one.

    Raises:
        ConfigError: If two agents' differ, since one learner trains them all.
    """
    shown = {agent: _options_of_one(agent, policy) for agent, policy in policies.items()}
    (first, options), *others = shown.items()
    for agent, found in others:
        differing = _differences(found, options, f"for agent {agent!r}", f"for {first!r}")
        if differing:
            raise ConfigError(
                f"One learner cannot train these policies: {'; '.join(differing)}. Train them apart."
            )
    return options if _are_alike(policies) else options | {"share_parameters": False}


def check_fits(policies: PolicySet, groups: tuple[GroupSpaces, ...], config: Mapping[str, Any]) -> None:
    """Refuse policies that an environment or a learner's options do not fit.

    Args:
        policies: Those to go on with.
        groups: The spaces of the environment's agents.
        config: The learner's checked options.

    Raises:
        ConfigError: If an agent is missing on either side, or spaces or options differ; the text names what.
    """
    there, here = list(policies.policies), [agent for group in groups for agent in group.agents]
    for agents, others, what in ((here, there, "no policy for"), (there, here, "no agent")):
        missing = [agent for agent in agents if agent not in others]
        if missing:
            raise ConfigError(
                f"There is {what} {_listed(missing)}. The task has {_listed(here)}; the policies are "
                f"those of {_listed(there)}."
            )
    policies.check_spaces(groups)
    shape = Architecture.of(dict(config))
    own = {
        "network.hidden_sizes": shape.hidden_sizes,
        "network.activation": shape.activation,
        "recurrent": shape.recurrent,
        "normalize_observations": config["normalize_observations"],
        "share_parameters": config.get("share_parameters", False),
    }
    differing = _differences(options_of(policies.policies), own, "there", "here")
    if differing:
        raise ConfigError(
            f"The policies were trained with other options: {'; '.join(differing)}. "
            "Leave them as the policies have them."
        )


def start_from(state: LearnerState, given: tuple[AgentState, ...], *, keep_statistics: bool) -> LearnerState:
    """Put the policies of every group into a fresh state, of every seed.

    Args:
        state: The fresh state.
        given: What acting needs of each group, as `PolicySet.agent_states` gives it.
        keep_statistics: Whether observation statistics are taken over; otherwise they begin anew.
    """
    agents = (
        with_policy(fresh, policy.params["params"], policy.observation_moments if keep_statistics else None)
        for fresh, policy in zip(state.agents, given, strict=True)
    )
    started: LearnerState = state.replace(agents=tuple(agents))
    return started


def _options_of_one(agent: str, policy: PolicyAdapter) -> dict[str, Any]:
    shape = architecture_of(agent, policy.network)
    return {
        "network.hidden_sizes": shape.hidden_sizes,
        "network.activation": shape.activation,
        "recurrent": shape.recurrent,
        "normalize_observations": policy.params["moments"] is not None,
    }


def _differences(one: Mapping[str, Any], other: Mapping[str, Any], there: str, here: str) -> list[str]:
    return [
        f"{name} is {value} {there} and {other[name]} {here}"
        for name, value in one.items()
        if value != other[name]
    ]


def _listed(agents: list[str]) -> str:
    return ", ".join(map(repr, agents))


def _are_alike(policies: Mapping[str, PolicyAdapter]) -> bool:
    """Whether agents with equal spaces have equal networks, as those have that share one."""
    return all(
        _equal_trees(one.params, other.params)
        for one, other in itertools.combinations(policies.values(), 2)
        if (one.observation_space, one.action_space) == (other.observation_space, other.action_space)
    )


def _equal_trees(one: Any, other: Any) -> bool:  # noqa: ANN401
    leaves, others = (dict(jax.tree_util.tree_leaves_with_path(tree)) for tree in (one, other))
    return leaves.keys() == others.keys() and all(np.array_equal(leaves[at], others[at]) for at in leaves)
