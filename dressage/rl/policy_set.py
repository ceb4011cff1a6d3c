"""The policies of all agents of a task, as one thing that acts, is saved and is loaded."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from dressage.errors import CheckpointError, ConfigError
from dressage.learning.architecture import Architecture
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.policy_files import read_policy_file, write_policy_file
from dressage.learning.records import AgentState
from dressage.learning.space_files import space_from_json, space_to_json
from dressage.rl.adapters import PolicyAdapter, acting_state, trained_adapter
from dressage.rl.results import ADAPTERS, TrainResult

FILE = "policies.safetensors"
MOMENTS = "moments"


@dataclasses.dataclass(frozen=True)
class PolicySet:
    """The policies of all agents.

    Attributes:
        policies: By agent.
        learner: Name of the learner that trained them.
        config: Its options; empty where files do not tell.
    """

    policies: dict[str, PolicyAdapter]
    learner: str
    config: dict[str, Any]

    @classmethod
    def of(cls, result: TrainResult) -> "PolicySet":
        """Take the policies of a result."""
        return cls(result.policies, result.learner, result.config)

    def reset(self) -> None:
        """Forget what recurrent policies remember: an episode begins."""
        for policy in self.policies.values():
            policy.reset()

    def act(self, observations: Mapping[str, Any], rng: Any = None) -> dict[str, Any]:  # noqa: ANN401
        """Choose an action for every agent that observes something.

        Args:
            observations: What each living agent observes.
            rng: A JAX random key; None takes the most likely actions.
        """
        keys = [None] * len(observations) if rng is None else list(jax.random.split(rng, len(observations)))
        pairs = zip(observations.items(), keys, strict=True)
        return {agent: self.policies[agent].act(seen, rng=key) for (agent, seen), key in pairs}

    def check_spaces(self, groups: tuple[GroupSpaces, ...]) -> None:
        """Refuse an environment in which an agent has other spaces than its policy.

        Raises:
            ConfigError: The text names the agent with both.
        """
        here = {
            agent: (group.observation_space, group.action_space) for group in groups for agent in group.agents
        }
        for agent, policy in self.policies.items():
            trained = policy.observation_space, policy.action_space
            if agent in here and here[agent] != trained:
                raise ConfigError(
                    f"The policy of agent {agent!r} was trained with observations in {trained[0]} and "
                    f"actions in {trained[1]}; this environment has {here[agent][0]} and {here[agent][1]}."
                )

    def agent_states(self, groups: tuple[GroupSpaces, ...]) -> tuple[AgentState, ...]:
        """Return what acting needs of each group's state, stacked where its agents have their own networks.

        Raises:
            CheckpointError: If an agent has no policy here.
        """
        missing = [agent for group in groups for agent in group.agents if agent not in self.policies]
        if missing:
            raise CheckpointError(
                f"There is no policy for {', '.join(missing)}; there are policies for "
                f"{', '.join(self.policies)}."
            )
        return tuple(self._group_state(group) for group in groups)

    def save(self, folder: Path) -> None:
        """Write all policies into one file in a folder; killed at any moment, the old file or this stands.

        Raises:
            UnsupportedSpaceError: If a space cannot be described.
        """
        tensors: dict[str, Any] = {}
        agents: dict[str, Any] = {}
        for index, (agent, policy) in enumerate(self.policies.items()):
            moments = policy.params["moments"]
            stored = {"network": policy.params["network"]}
            if moments is not None:
                stored[MOMENTS] = {name: getattr(moments, name) for name in ("count", "mean", "var")}
            tensors |= {f"{index}/{name}": leaf for name, leaf in flatten_dict(stored, sep="/").items()}
            agents[agent] = {
                "kind": type(policy).__name__,
                "observation_space": space_to_json(_known(policy.observation_space)),
                "action_space": space_to_json(_known(policy.action_space)),
            }
        description = {"learner": self.learner, "config": self.config, "agents": agents}
        folder.mkdir(parents=True, exist_ok=True)
        write_policy_file(folder / FILE, description, tensors)

    @classmethod
    def load(cls, folder: Path) -> "PolicySet":
        """Read what `save` wrote.

        Raises:
            CheckpointError: If the file is missing, cut short or altered.
        """
        description, tensors = read_policy_file(folder / FILE)
        if "agents" not in description:
            raise CheckpointError(f"{folder / FILE} holds no policies of several agents.")
        nested: Any = unflatten_dict({name: jnp.asarray(array) for name, array in tensors.items()}, sep="/")
        architecture = Architecture.of(description["config"])
        policies: dict[str, PolicyAdapter] = {}
        for index, (agent, entry) in enumerate(description["agents"].items()):
            spaces = GroupSpaces.of(
                (agent,),
                space_from_json(entry["observation_space"]),
                space_from_json(entry["action_space"]),
            )
            stored = nested[str(index)]
            state = acting_state(stored["network"], stored.get(MOMENTS))
            kind = ADAPTERS[entry["kind"]]
            policies[agent] = trained_adapter(kind, agent, spaces, architecture.network(spaces.spec), state)
        return cls(policies, description["learner"], description["config"])

    def _group_state(self, group: GroupSpaces) -> AgentState:
        own = [self.policies[agent].params for agent in group.agents]
        states = [acting_state(params["network"], params["moments"]) for params in own]
        if len(states) == 1 or self.config.get("share_parameters", False):
            return states[0]
        stacked: AgentState = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        return stacked


def _known(space: Any) -> Any:  # noqa: ANN401
    if space is None:
        raise CheckpointError("A policy without its spaces cannot be saved; `train` gives policies both.")
    return space
