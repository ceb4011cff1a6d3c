"""The augmented action: a proposal and the shield's own parameters, in one space that learners know."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import gymnasium
import jax.numpy as jnp
import numpy as np
from jax import Array

from dressage.config import suggest
from dressage.errors import ConfigError, EnvironmentContractError, UnsupportedSpaceError
from dressage.shield.decision import Shield, Space
from dressage.shield.mask import MaskShield
from dressage.shield.probabilistic import ProbabilisticShield

if TYPE_CHECKING:
    from dressage.shield.decision import Decision, PyTree

ACTION, PARAMETERS = "action", "shield"
"""Keys of an augmented action that is a Dict."""
INFEASIBLE, RATE, EXECUTED = "shield_infeasible", "shield_rate", "executed_action"
"""Keys of `info`, besides `INTERVENED`, which says whether the shield changed the proposal in this step:
whether no action kept its rule; the share of the episode's steps so far in which it intervened; and the
action that the environment got."""

_WITHOUT = {"MaskShield": "a threshold", "BarrierShield": "a gain", "ProbabilisticShield": "learned=False"}
"""What takes the number out of an action, by shield."""

Shields = Shield | Mapping[str, Shield]


@dataclass(frozen=True)
class ShieldedAgent:
    """An agent, its shield, and the spaces on both sides of it.

    Attributes:
        name: The agent.
        shield: Its shield.
        inner: The space of what is executed.
        observed: The space of what the environment shows.
    """

    name: str
    shield: Shield
    inner: Space
    observed: Space

    @cached_property
    def proposed(self) -> Space:
        """The space of proposals."""
        return self.shield.proposal_space(self.inner, self.name)

    @cached_property
    def action_space(self) -> Space:
        """The space of augmented actions.

        A Dict of a discrete proposal under `"action"` and unbounded numbers under `"shield"`; one unbounded
        Box of both, the proposal first, where that is a Box; the proposals' own space without parameters.
        """
        number = self.shield.parameter_dim
        if number == 0:
            return self.proposed
        if isinstance(self.proposed, gymnasium.spaces.Discrete):
            parameters = gymnasium.spaces.Box(-np.inf, np.inf, (number,), np.float32)
            return gymnasium.spaces.Dict({ACTION: self.proposed, PARAMETERS: parameters})
        return gymnasium.spaces.Box(-np.inf, np.inf, (size_of(self.proposed) + number,), np.float32)

    @cached_property
    def observation_space(self) -> Space:
        """The space of observations: what the shield remembers follows what the environment shows.

        Raises:
            UnsupportedSpaceError: If the shield remembers something and the observation is no row of numbers.
        """
        number, observed = self.shield.memory_dim, self.observed
        if number == 0:
            return observed
        if not isinstance(observed, gymnasium.spaces.Box) or len(observed.shape) != 1:
            raise UnsupportedSpaceError(
                f"{type(self.shield).__name__} adds {number} to the observation, which must be a Box of one "
                f"axis; agent {self.name!r} observes {observed}. Make it a row in the environment."
            )
        low = np.concatenate([observed.low, np.zeros(number)]).astype(np.float32)
        high = np.concatenate([observed.high, np.full(number, np.inf)]).astype(np.float32)
        return gymnasium.spaces.Box(low, high, dtype=np.float32)

    def split(self, action: Any) -> tuple[Array, Array]:  # noqa: ANN401 (an element of `action_space`)
        """Take an augmented action apart.

        Returns:
            The proposal, a zero-based index `[]` or `[n]` numbers, and the parameters `[parameter_dim]`.

        Raises:
            EnvironmentContractError: If it is no such action, as one without the shield's parameters.
        """
        proposal, parameters = action, jnp.zeros(0)
        if isinstance(self.action_space, gymnasium.spaces.Dict):
            if not isinstance(action, Mapping) or set(action) != {ACTION, PARAMETERS}:
                raise self._refusal(_words(action))
            proposal, parameters = action[ACTION], self._row(action[PARAMETERS], self.shield.parameter_dim)
        elif self.shield.parameter_dim:
            number = size_of(self.proposed)
            joined = self._row(action, number + self.shield.parameter_dim)
            proposal, parameters = joined[:number], joined[number:]
        elif isinstance(action, Mapping):
            raise self._refusal(_words(action))
        if np.shape(proposal) != self.proposed.shape:
            raise self._refusal(f"a proposal of shape {np.shape(proposal)}")
        if isinstance(self.proposed, gymnasium.spaces.Discrete):
            return jnp.asarray(proposal, jnp.int32) - int(self.proposed.start), parameters
        return jnp.asarray(proposal, jnp.float32), parameters

    def decide(self, memory: "PyTree", seen: "PyTree", proposal: Array, parameters: Array) -> "Decision":
        """Let the shield decide; what it sees must fit it.

        Raises:
            UnsupportedSpaceError: If the shield has a risk for another number of actions than the agent has.
            EnvironmentContractError: If it must see the index of a state and sees something else.
        """
        if isinstance(self.shield, MaskShield):
            self.shield.check_risks(seen, self.inner, self.name)
        if isinstance(self.shield, ProbabilisticShield):
            self.shield.check_state(seen, self.name)
        return self.shield.decide(memory, seen, proposal, parameters)

    def executed(self, action: Array) -> Array:
        """Return a decision's action as the environment takes it."""
        if isinstance(self.inner, gymnasium.spaces.Discrete):
            return action + int(self.inner.start)
        return action

    def shown(self, observation: "PyTree", memory: "PyTree") -> "PyTree":
        """Return what a policy sees: the observation, followed by what the shield remembers."""
        if self.shield.memory_dim == 0:
            return observation
        joined: Array = jnp.concatenate([jnp.asarray(observation, jnp.float32), self.shield.features(memory)])
        return joined

    def _row(self, numbers: Any, length: int) -> Array:  # noqa: ANN401
        if np.shape(numbers) != (length,):
            raise self._refusal(_words(numbers))
        return jnp.asarray(numbers, jnp.float32)

    def _refusal(self, found: str) -> EnvironmentContractError:
        kind, number = type(self.shield).__name__, self.shield.parameter_dim
        if number == 0:
            return EnvironmentContractError(
                f"Agent {self.name!r} acts in {self.proposed}; its {kind} takes no number of its own, so an "
                f"action is the proposal alone, got {found}."
            )
        wanted = f'{{"{ACTION}": one of {self.proposed}, "{PARAMETERS}": {number} in a row}}'
        if not isinstance(self.action_space, gymnasium.spaces.Dict):
            proposed = size_of(self.proposed)
            wanted = f"{proposed + number} in a row, the {proposed} of the proposal first"
        return EnvironmentContractError(
            f"The {kind} of agent {self.name!r} takes {number} number of its own with each proposal: give "
            f"{wanted}; got {found}. So acts ParameterizedIPPO, and action_space({self.name!r}).sample(); "
            f"a shield with {_WITHOUT.get(kind, 'fixed parameters')} takes the proposal alone."
        )


def _words(action: Any) -> str:  # noqa: ANN401
    """Describe an action by its structure, which is all that compiled code sees of it."""
    if isinstance(action, Mapping):
        return f"a dict of {', '.join(map(repr, sorted(action))) or 'nothing'}"
    return f"numbers of shape {np.shape(action)}" if np.ndim(action) else "one number"


def size_of(space: Space) -> int:
    """Return how many numbers an element of a Box has."""
    return int(np.prod(space.shape or ()))


def shielded_agents(
    agents: tuple[str, ...], shields: Shields, observed: Mapping[str, Space], inner: Mapping[str, Space]
) -> dict[str, ShieldedAgent]:
    """Match agents with their shields and check that these fit.

    Args:
        agents: All agents.
        shields: One shield for all, or one for each agent named.
        observed: Each agent's observation space.
        inner: Each agent's action space.

    Returns:
        The agents that have a shield, in the order of `agents`.

    Raises:
        ConfigError: If a shield is given for an agent that does not exist, or none at all.
        UnsupportedSpaceError: If a shield does not fit an agent's spaces.
    """
    by_agent = dict(shields) if isinstance(shields, Mapping) else dict.fromkeys(agents, shields)
    for name in by_agent:
        if name not in agents:
            raise ConfigError(
                f"A shield is given for {name!r}, which is no agent of this environment."
                f"{suggest(name, agents)}"
            )
    if not by_agent:
        raise ConfigError(
            f"Give at least one shield: one for all of {', '.join(agents)}, or a dict by agent; got "
            f"{shields!r}."
        )
    for name, shield in by_agent.items():
        if isinstance(shield, type) or not hasattr(shield, "decide"):
            raise ConfigError(
                f"The shield of agent {name!r} must be a MaskShield, BarrierShield, ProbabilisticShield or "
                f"what has their methods, got {shield!r}."
            )
    matched = {
        name: ShieldedAgent(name, by_agent[name], inner[name], observed[name])
        for name in agents
        if name in by_agent
    }
    for one in matched.values():
        _ = one.action_space, one.observation_space  # asks for both, so that a misfit shows here
    return matched
