"""Steps environment copies one after another and writes what they return into blocks.

This is the one place that knows what a `ParallelEnv` may do: agents that end, vanish or appear, dicts in any
order, environments that list their dead. It runs in the learner's process or in a worker's, the same code.
"""

import traceback
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dressage.config import suggest
from dressage.errors import DressageError, EnvironmentContractError, EnvironmentRaisedError
from dressage.tracebacks import told
from dressage.workers.blocks import Blocks, GroupBlocks
from dressage.workers.layout import ACTION_MASK, INTERVENED, ActionLayout, AgentGroup, ParallelLayout

_NUMBER = (float, int, np.generic)
_DICTS = ("observations", "rewards", "terminations", "truncations", "infos")

_Returned = tuple[
    Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]
]


class _Seat:
    """One agent of one copy: where its rows lie, and whether someone sits there."""

    __slots__ = (
        "action",
        "agent",
        "alive",
        "blocks",
        "final",
        "first",
        "gone",
        "group",
        "index",
        "mask",
        "observation",
        "shape",
        "vector",
    )

    def __init__(self, group: AgentGroup, blocks: GroupBlocks, row: int, copy: int) -> None:
        self.agent = group.agents[row]
        self.group = group
        self.blocks = blocks
        self.index = (row, copy)
        self.observation = blocks.observation[row, copy]
        self.final = blocks.final_observation[row, copy]
        self.mask = blocks.mask[row, copy]
        self.vector = group.observation.is_vector and group.mask_from != "observation"
        self.shape = self.observation.shape
        self.alive = False
        self.gone = False  # Ended by a flag, and not seen to have left `env.agents` since.
        self.action: Any = None
        self.first: Any = None  # What an agent that appeared saw first, until the rows to act on are made.


class EnvCopies:
    """Copies of a `ParallelEnv`, stepped in turn.

    Args:
        envs: The copies; they are closed by `close`.
        layout: How they lie in arrays.
        blocks: The arrays, of as many copies.
        first_copy: Number of the first copy, for error texts.
    """

    def __init__(
        self, envs: Sequence[Any], layout: ParallelLayout, blocks: Blocks, first_copy: int = 0
    ) -> None:
        self._envs = list(envs)
        self._blocks = blocks
        self._first_copy = first_copy
        self._cost_key = layout.cost_key
        self._cost_default = layout.cost_default
        self._costs_reported = layout.costs_reported
        self._layouts = [group.action for group in layout.groups]
        self._seats = [self._seats_of(layout, copy) for copy in range(len(self._envs))]
        self._by_group = [
            [seat for seats in self._seats for seat in seats if seat.group is group]
            for group in layout.groups
        ]
        self._agents = frozenset(agent for group in layout.groups for agent in group.agents)
        self._steps = [0] * len(self._envs)

    @property
    def saves_state(self) -> bool:
        """Whether every copy can save its state as arrays: it has `save_state` and `load_state`."""
        methods = ("save_state", "load_state")
        return all(callable(getattr(env, name, None)) for env in self._envs for name in methods)

    def save_state(self) -> list[dict[str, Any]]:
        """Return every copy's state and who sits where, as arrays."""
        return [
            {
                "env": env.save_state(),
                "alive": np.array([seat.alive for seat in seats]),
                "gone": np.array([seat.gone for seat in seats]),
            }
            for env, seats in zip(self._envs, self._seats, strict=True)
        ]

    def load_state(self, saved: Sequence[Mapping[str, Any]]) -> None:
        """Go on from what `save_state` returned."""
        for env, seats, one in zip(self._envs, self._seats, saved, strict=True):
            env.load_state(one["env"])
            for seat, alive, gone in zip(seats, one["alive"], one["gone"], strict=True):
                seat.alive, seat.gone = bool(alive), bool(gone)
                seat.blocks.alive[seat.index] = seat.alive

    def reset(self) -> None:
        """Start an episode in every copy, seeded with the blocks' seeds.

        Raises:
            EnvironmentRaisedError: If `reset` raises.
            EnvironmentContractError: If what it returns is not what a `ParallelEnv` returns.
        """
        self._steps = [0] * len(self._envs)
        for group in self._blocks.groups:
            group.mask.fill(True)
            group.observation.fill(0.0)
        with np.errstate(over="ignore"):  # The caller reports what float32 cannot hold.
            for copy, seed in enumerate(self._blocks.seeds.tolist()):
                self._restart(copy, seed)

    def step(self) -> None:
        """Step every copy that does not rest with the blocks' actions; where an episode ends it is reset.

        Raises:
            EnvironmentRaisedError: If `step` or `reset` raises.
            EnvironmentContractError: If what it returns is not what a `ParallelEnv` returns.
        """
        self._deal_actions()
        rests = self._blocks.resting
        moving = np.flatnonzero(~rests).tolist()
        returned = [self._advance(copy) for copy in moving]
        kept = self._rows_of(rests) if rests.any() else []
        for group in self._blocks.groups:
            group.begin_step()
        with np.errstate(over="ignore"):
            newcomers = [self._take(copy, one) for copy, one in zip(moving, returned, strict=True)]
            for group in self._blocks.groups:
                group.observation[...] = group.final_observation
            for copy, (ended, after) in zip(moving, newcomers, strict=True):
                self._follow(copy, ended, after)
                self._steps[copy] += 1
        for group, observation, mask in kept:
            group.observation[:, rests], group.mask[:, rests] = observation, mask
            group.alive_before[:, rests] = False
        self._blocks.ended[rests] = False

    def close(self) -> None:
        """Close every copy."""
        for env in self._envs:
            env.close()

    def _rows_of(self, copies: np.ndarray) -> list[tuple[GroupBlocks, np.ndarray, np.ndarray]]:
        """Return what some copies' agents act on next, group by group."""
        groups = self._blocks.groups
        return [(group, group.observation[:, copies], group.mask[:, copies]) for group in groups]

    def _seats_of(self, layout: ParallelLayout, copy: int) -> list[_Seat]:
        return [
            _Seat(group, blocks, row, copy)
            for group, blocks in zip(layout.groups, self._blocks.groups, strict=True)
            for row in range(len(group.agents))
        ]

    def _deal_actions(self) -> None:
        """Give every seat its action, as the environment takes it.

        The arrays are copied once: an environment may keep what it was given, and the blocks change.
        """
        for layout, blocks, seats in zip(self._layouts, self._blocks.groups, self._by_group, strict=True):
            parts = [np.array(part) for part in blocks.actions]
            whole = parts[0] if layout.is_array else None
            for seat in seats:
                seat.action = _action(layout, parts, seat.index) if whole is None else whole[seat.index]

    def _advance(self, copy: int) -> _Returned:
        actions = {seat.agent: seat.action for seat in self._seats[copy] if seat.alive}
        try:
            returned = self._envs[copy].step(actions)
        except Exception as error:
            raise self._raised(copy, "step", error) from error
        if not isinstance(returned, tuple) or len(returned) != len(_DICTS):
            raise self._broken(copy, f"step must return the five dicts {', '.join(_DICTS)}")
        for name, one in zip(_DICTS, returned, strict=True):
            if type(one) is not dict and not isinstance(one, Mapping):
                raise self._broken(
                    copy, f"step gave {name} as a {type(one).__name__}, not as a dict by agent"
                )
            # More entries than agents acted: the dead, newcomers, or a name that is none.
            if len(one) > len(actions) and not one.keys() <= self._agents:
                self._refuse_unknown(copy, name, one)
        return returned

    def _refuse_unknown(self, copy: int, name: str, one: Mapping[str, Any]) -> None:
        """Refuse entries of no agent; infos may hold what they like, and so may names like `__all__`."""
        unknown = [agent for agent in one if agent not in self._agents and not str(agent).startswith("__")]
        if unknown and name != "infos":
            raise EnvironmentContractError(
                f"{self._place(copy)}: {name} has an entry for {unknown[0]!r}, which is none of the possible "
                f"agents.{suggest(str(unknown[0]), self._agents)}"
            )

    def _take(self, copy: int, returned: _Returned) -> tuple[bool, list[_Seat]]:
        """Write what a step returned; returns whether the episode ended, and whose next rows differ."""
        listed = set(self._envs[copy].agents)
        differ: list[_Seat] = []
        ended = True
        for seat in self._seats[copy]:
            if seat.alive:
                stays = self._take_acted(copy, seat, returned, listed)
                differ += () if stays else (seat,)
                ended = ended and not stays
            elif seat.agent not in listed:
                seat.gone = False
            elif not seat.gone:
                self._begin(copy, seat, returned[0], returned[4])
                differ.append(seat)
                ended = False
        return ended, differ

    def _take_acted(self, copy: int, seat: _Seat, returned: _Returned, listed: set[str]) -> bool:
        """Write what an agent's action led to; returns whether it acts again."""
        observations, rewards, terminations, truncations, infos = returned
        agent, index, blocks = seat.agent, seat.index, seat.blocks
        try:
            reward, terminated, truncated = rewards[agent], terminations[agent], truncations[agent]
            info = infos[agent]
        except KeyError:
            self._take_incomplete(copy, seat, returned, listed)
            return False
        blocks.reward[index] = reward if isinstance(reward, _NUMBER) else self._number(copy, seat, reward)
        if self._cost_key is not None:
            blocks.cost[index] = self._cost(copy, seat, info)
        if seat.group.shielded:
            blocks.intervened[index] = bool(info[INTERVENED])
        flagged = bool(terminated) or bool(truncated)
        stays = not flagged and agent in listed
        if agent in observations:
            self._observe(copy, seat, seat.final, observations[agent], info if stays else None)
        elif not terminated:
            if stays or flagged:
                raise self._missing(copy, agent, "observations", observations)
            blocks.missing[index] = True
        if not stays:
            blocks.terminated[index] = terminated
            blocks.truncated[index] = bool(truncated) or not flagged
            self._leave(seat, flagged)
        return stays

    def _take_incomplete(self, copy: int, seat: _Seat, returned: _Returned, listed: set[str]) -> None:
        """Handle an agent that some dict does not speak of: it vanished, or the environment forgot it."""
        observations, rewards, terminations, truncations, infos = returned
        agent, index, blocks = seat.agent, seat.index, seat.blocks
        terminated, truncated = bool(terminations.get(agent)), bool(truncations.get(agent))
        flagged = terminated or truncated
        needed = zip(_DICTS[1:4], (rewards, terminations, truncations), strict=True)
        for name, one in needed:
            if (flagged or agent in listed) and agent not in one:
                raise self._missing(copy, agent, name, one)
        if agent in listed and not flagged:
            raise self._missing(copy, agent, "infos", infos)
        if agent in rewards:
            blocks.reward[index] = self._number(copy, seat, rewards[agent])
        if self._cost_key is not None and (flagged or agent in infos):
            blocks.cost[index] = self._cost(copy, seat, infos.get(agent, {}))
        if agent in observations:
            self._observe(copy, seat, seat.final, observations[agent], None)
        elif truncated and not terminated:
            raise self._missing(copy, agent, "observations", observations)
        else:
            blocks.missing[index] = not terminated
        blocks.terminated[index] = terminated
        blocks.truncated[index] = truncated or not terminated
        self._leave(seat, flagged)

    def _leave(self, seat: _Seat, flagged: bool) -> None:
        seat.alive = False
        seat.gone = flagged
        seat.blocks.alive[seat.index] = False

    def _follow(self, copy: int, ended: bool, differ: list[_Seat]) -> None:
        """Put right the rows to act on next that are not what the step led to."""
        self._blocks.ended[copy] = ended
        if ended:
            self._restart(copy, None)
            return
        for seat in differ:
            if seat.alive:
                seat.observation[...] = seat.first
            else:
                seat.observation.fill(0.0)

    def _restart(self, copy: int, seed: int | None) -> None:
        env = self._envs[copy]
        try:
            returned = env.reset() if seed is None else env.reset(seed=seed)
        except Exception as error:
            raise self._raised(copy, "reset", error) from error
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise self._broken(copy, "reset must return observations and infos")
        observations, infos = returned
        listed = set(env.agents)
        if not observations.keys() <= self._agents:
            self._refuse_unknown(copy, "observations of reset", observations)
        for seat in self._seats[copy]:
            seat.alive, seat.gone = seat.agent in listed, False
            seat.blocks.alive[seat.index] = seat.alive
            seat.mask.fill(True)
            if not seat.alive:
                seat.observation.fill(0.0)
                continue
            if seat.agent not in observations:
                raise self._missing(copy, seat.agent, "observations of reset", observations)
            self._observe(copy, seat, seat.observation, observations[seat.agent], infos.get(seat.agent, {}))
        if not any(seat.alive for seat in self._seats[copy]):
            raise self._broken(copy, f"reset gave no agent: env.agents is {list(env.agents)!r}")

    def _begin(self, copy: int, seat: _Seat, observations: Mapping[str, Any], infos: Any) -> None:  # noqa: ANN401
        """Seat an agent that appeared."""
        if seat.agent not in observations:
            raise self._missing(copy, seat.agent, "observations", observations)
        seat.alive = True
        seat.blocks.alive[seat.index] = True
        seat.first = np.zeros_like(seat.observation)
        self._observe(copy, seat, seat.first, observations[seat.agent], infos.get(seat.agent, {}))

    def _observe(self, copy: int, seat: _Seat, row: Any, observation: Any, info: Any) -> None:  # noqa: ANN401
        """Write an observation, and the mask of the next action unless `info` is None: the agent is gone."""
        if seat.vector and isinstance(observation, np.ndarray) and observation.shape == seat.shape:
            row[...] = observation
        else:
            self._observe_slowly(copy, seat, row, observation)
        if seat.group.mask_from and info is not None:
            source = observation if seat.group.mask_from == "observation" else info
            self._mask(copy, seat, source)

    def _observe_slowly(self, copy: int, seat: _Seat, row: Any, observation: Any) -> None:  # noqa: ANN401
        key = seat.group.observation_key
        try:
            seat.group.observation.write(row, observation if key is None else observation[key])
        except (EnvironmentContractError, KeyError, TypeError, ValueError) as error:
            raise self._broken(copy, f"the observation of agent {seat.agent!r} {error}") from error

    def _mask(self, copy: int, seat: _Seat, source: Any) -> None:  # noqa: ANN401
        try:
            mask = source[ACTION_MASK]
        except (KeyError, TypeError) as error:
            raise self._broken(
                copy, f"agent {seat.agent!r} has no {ACTION_MASK!r} in its {seat.group.mask_from}"
            ) from error
        parts = mask.values() if isinstance(mask, Mapping) else mask
        flat = (
            np.concatenate([np.ravel(part) for part in parts])
            if isinstance(mask, Mapping | tuple)
            else np.ravel(mask)
        )
        if flat.shape != seat.mask.shape:
            raise self._broken(
                copy,
                f"the action mask of agent {seat.agent!r} has {flat.size} entries, needs {seat.mask.size}, "
                f"one for each of the choices {seat.group.nvec}",
            )
        seat.mask[...] = flat != 0
        cuts = np.cumsum((0, *seat.group.nvec[:-1]))
        if not np.logical_or.reduceat(seat.mask, cuts).all():
            raise self._broken(copy, f"the action mask of agent {seat.agent!r} leaves it no legal choice")

    def _cost(self, copy: int, seat: _Seat, info: Any) -> float:  # noqa: ANN401
        key = self._cost_key
        cost = info.get(key) if isinstance(info, Mapping) else None
        if cost is None and (not isinstance(info, Mapping) or key not in info):
            if self._cost_default is not None:
                return self._cost_default
            present = sorted(map(str, info)) if isinstance(info, Mapping) else info
            raise self._broken(
                copy,
                f"the info of agent {seat.agent!r} has no cost {key!r}; it has {present}. "
                "Name the right key (cost_key) or a cost for where there is none (cost_default)",
            )
        if self._costs_reported and self._cost_default is not None and not _is_number(cost):
            return self._cost_default
        return self._number(copy, seat, cost, f"cost {key!r}")

    def _number(self, copy: int, seat: _Seat, value: Any, field: str = "reward") -> float:  # noqa: ANN401
        array = np.asarray(value)
        if not _is_number(array):
            raise self._broken(copy, f"the {field} of agent {seat.agent!r} is {value!r}, not one number")
        return float(array.reshape(()))

    def _missing(self, copy: int, agent: str, name: str, one: Mapping[str, Any]) -> EnvironmentContractError:
        present = ", ".join(map(repr, one)) or "none"
        return self._broken(copy, f"there is no entry for agent {agent!r} in {name}; it has {present}")

    def _broken(self, copy: int, what: str) -> EnvironmentContractError:
        return EnvironmentContractError(f"{self._place(copy)}: {what}.")

    def _raised(self, copy: int, method: str, error: Exception) -> DressageError:
        if isinstance(error, DressageError):
            return type(error)(f"{self._place(copy)}: {error}")
        raised = EnvironmentRaisedError(f"{self._place(copy)}: {method} raised {told(error)}")
        raised.add_note("".join(traceback.format_exception(error)))
        return raised

    def _place(self, copy: int) -> str:
        return f"{place(self._first_copy + copy, self._steps[copy])} ({type(self._envs[copy]).__name__})"


def _is_number(value: Any) -> bool:  # noqa: ANN401
    array = np.asarray(value)
    return array.size == 1 and array.dtype.kind in "biuf"


def place(copy: int, step: int) -> str:
    """Say where something happened."""
    return f"Environment copy {copy}, step {step} of that copy (counted from 0 since it was seeded)"


def _action(layout: ActionLayout, parts: list[Any], index: tuple[int, int]) -> Any:  # noqa: ANN401
    # Indexing all axes gives a NumPy scalar, which only Discrete takes.
    values = [
        part[index] if described.shape or described.scalar else np.asarray(part[index])
        for part, described in zip(parts, layout.parts, strict=True)
    ]
    if layout.form == "single":
        return values[0]
    if layout.form == "tuple":
        return tuple(values)
    return {described.name: value for described, value in zip(layout.parts, values, strict=True)}
