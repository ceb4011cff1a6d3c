"""What training returns, and how it is written to a folder and read back."""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax.traverse_util import unflatten_dict

from dressage.errors import CheckpointError, ConfigError
from dressage.learning.architecture import Architecture
from dressage.learning.checkpoints import Checkpoints, named_arrays, rebuild_state
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.groups import Group
from dressage.learning.records import LearnerState
from dressage.learning.space_files import space_from_json, space_to_json
from dressage.rl.adapters import ParameterizedPolicyAdapter, PolicyAdapter, acting_state, trained_adapter

ADAPTERS: dict[str, type[PolicyAdapter]] = {
    kind.__name__: kind for kind in (PolicyAdapter, ParameterizedPolicyAdapter)
}


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far training has come.

    Attributes:
        updates: Updates made.
        steps: Environment steps taken, over all copies.
        episodes: Episodes finished, over all copies.
        episode_starts: For each copy, after how many environment steps its open episode began.
    """

    updates: int = 0
    steps: int = 0
    episodes: int = 0
    episode_starts: tuple[int, ...] = ()


@dataclasses.dataclass
class TrainResult:
    """What training returns.

    Attributes:
        history: One dictionary per finished episode: `episode`, `env_index`, `start_step`, `end_step`,
            `length`, `agent_returns`, `agent_costs`, `terminated`, `truncated`. Steps are environment steps
            of the whole training over all copies, `length` those of the one copy.
        metrics: For each agent one dictionary of floats per update.
        policies: For each agent a policy that acts.
        agent_states: For each agent all that is needed to go on training, a pytree.
        learner: Name of the learner that trained.
        config: Its options.
        seed: The seed.
        progress: How far training has come.
        spaces: The spaces of each group of equal agents.
        state: The whole state of training, environments included where they can be saved.
    """

    history: list[Any]
    metrics: dict[str, list[dict[str, float]]]
    policies: dict[str, PolicyAdapter]
    agent_states: dict[str, Any]
    learner: str = ""
    config: dict[str, Any] = dataclasses.field(default_factory=dict)
    seed: int = 0
    progress: Progress = Progress()
    spaces: tuple[GroupSpaces, ...] = ()
    state: Any = None

    def save(self, folder: str | Path) -> None:
        """Write everything into a folder: a later process can act with the policies or go on training.

        Killed at any moment, the folder holds what was saved there before or this.

        Raises:
            ValueError: If the result was not made by training.
        """
        if self.state is None:
            raise ValueError(
                "This result holds no state of training: only what `train` returned can be saved."
            )
        checkpoints = Checkpoints(folder, keep=1)
        try:
            checkpoints.save(_next_step(checkpoints), self.state, self._note())
        finally:
            checkpoints.close()

    @classmethod
    def load(cls, folder: str | Path) -> "TrainResult":
        """Read a result that `save` wrote.

        Returns:
            The result; its `state` and `agent_states` are plain nested dictionaries of arrays, which
            `train(..., resume_from=...)` takes.

        Raises:
            CheckpointError: If there is none, or it is incomplete or altered.
        """
        path = Path(folder)
        if not path.is_dir():
            raise CheckpointError(f"There is no saved result in {path}: the folder does not exist.")
        checkpoints = Checkpoints(path, keep=1)
        try:
            arrays, note = checkpoints.read()
        finally:
            checkpoints.close()
        return _rebuild(unflatten_dict(arrays, sep="/"), note)

    def _note(self) -> dict[str, Any]:
        kind = type(next(iter(self.policies.values()))).__name__
        return {
            "learner": self.learner,
            "config": self.config,
            "seed": self.seed,
            "adapter": kind,
            "progress": dataclasses.asdict(self.progress),
            "history": self.history,
            "metrics": self.metrics,
            "groups": [
                {
                    "agents": group.agents,
                    "observation_space": space_to_json(group.observation_space),
                    "action_space": space_to_json(group.action_space),
                }
                for group in self.spaces
            ],
        }


def restored_state(like: LearnerState, saved: Any) -> LearnerState:  # noqa: ANN401
    """Give a saved state the structure of a new one.

    Args:
        like: A state of the same learner and environment, just started.
        saved: A `LearnerState`, or the nested dictionaries that `TrainResult.load` gives.

    Raises:
        ConfigError: If it was saved by another learner, or for another environment.
    """
    named = named_arrays(saved)
    wanted = named_arrays(like)
    lacking, extra = sorted(set(wanted) - set(named)), sorted(set(named) - set(wanted))
    if lacking or extra:
        raise ConfigError(
            f"What is to be resumed does not fit: it lacks {lacking[:3] or 'nothing'} and has "
            f"{extra[:3] or 'nothing'} besides. Resume with the learner, options and environment that it was "
            "made with."
        )
    for name, array in wanted.items():
        here, there = np.shape(array), np.shape(named[name])
        if here != there:
            raise ConfigError(
                f"What is to be resumed does not fit: {name!r} has shape {there}, but {here} is needed. "
                "Resume with the options and the environment that it was made with."
            )
    return rebuild_state(like, named)


def agent_states(groups: tuple[Group, ...], states: tuple[Any, ...]) -> dict[str, Any]:
    """Return each agent's own state."""
    agents = [agent for group in groups for agent in group.agents]
    return dict(zip(agents, _apart(groups, states), strict=True))


@jax.jit
def _apart(groups: tuple[Group, ...], states: tuple[Any, ...]) -> list[Any]:
    """Take stacked states apart in one compiled call: they are dozens of small arrays."""
    return [
        group.agent_state(state, index)
        for group, state in zip(groups, states, strict=True)
        for index in range(len(group.agents))
    ]


def _next_step(checkpoints: Checkpoints) -> int:
    latest = checkpoints.latest()
    return 0 if latest is None else latest + 1


def _rebuild(nested: dict[str, Any], note: dict[str, Any]) -> TrainResult:
    spaces = tuple(
        GroupSpaces.of(
            tuple(group["agents"]),
            space_from_json(group["observation_space"]),
            space_from_json(group["action_space"]),
        )
        for group in note["groups"]
    )
    config, architecture = note["config"], Architecture.of(note["config"])
    states: dict[str, Any] = {}
    policies: dict[str, PolicyAdapter] = {}
    for index, group in enumerate(spaces):
        stacked = len(group.agents) > 1 and not config.get("share_parameters", False)
        for place, agent in enumerate(group.agents):
            stored = nested["agents"][str(index)]
            states[agent] = jax.tree.map(lambda leaf, i=place: leaf[i], stored) if stacked else stored
            network = architecture.network(group.spec)
            kind = ADAPTERS[note["adapter"]]
            moments = states[agent].get("observation_moments")
            policies[agent] = trained_adapter(
                kind, agent, group, network, acting_state(states[agent]["params"], moments)
            )
    return TrainResult(
        history=note["history"],
        metrics=note["metrics"],
        policies=policies,
        agent_states=states,
        learner=note["learner"],
        config=config,
        seed=note["seed"],
        progress=Progress(**note["progress"] | {"episode_starts": tuple(note["progress"]["episode_starts"])}),
        spaces=spaces,
        state=nested,
    )
