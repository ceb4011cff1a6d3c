"""The augmented action: a proposal and the shield's own parameters, in one space that learners know."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import gymnasium
import jax.numpy as jnp
import numpy as np
from jax import Array

from dressage.config import check_names
from dressage.errors import ConfigError, UnsupportedSpaceError
from dressage.shield.decision import Shield, Space
from dressage.shield.mask import MaskShield

if TYPE_CHECKING:
    from dressage.shield.decision import Decision, PyTree

ACTION, PARAMETERS = "action", "shield"
"""Keys of an augmented action that is a Dict."""
INTERVENED, INFEASIBLE, RATE, EXECUTED = (
    "shield_intervened",
    "shield_infeasible",
    "shield_rate",
    "executed_action",
)
"""Keys of `info`: whether the shield changed the proposal in this step; whether no action kept its rule; the
share of the episode's steps so far in which it intervened; and the action that the environment got."""

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
                f"axis; agent {self.name!r} observes {observed}."
            )
        low = np.concatenate([observed.low, np.zeros(number)]).astype(np.float32)
        high = np.concatenate([observed.high, np.full(number, np.inf)]).astype(np.float32)
        return gymnasium.spaces.Box(low, high, dtype=np.float32)

    def split(self, action: Any) -> tuple[Array, Array]:  # noqa: ANN401 (an element of `action_space`)
        """Take an augmented action apart.

        Returns:
            The proposal, a zero-based index `[]` or `[n]` numbers, and the parameters `[parameter_dim]`.
        """
        proposal, parameters = action, jnp.zeros(0)
        if isinstance(self.action_space, gymnasium.spaces.Dict):
            proposal, parameters = action[ACTION], jnp.asarray(action[PARAMETERS], jnp.float32)
        elif self.shield.parameter_dim:
            number = size_of(self.proposed)
            joined = jnp.asarray(action, jnp.float32)
            proposal, parameters = joined[:number], joined[number:]
        if isinstance(self.proposed, gymnasium.spaces.Discrete):
            return jnp.asarray(proposal, jnp.int32) - int(self.proposed.start), parameters
        return jnp.asarray(proposal, jnp.float32), parameters

    def decide(self, memory: "PyTree", seen: "PyTree", proposal: Array, parameters: Array) -> "Decision":
        """Let the shield decide; what it sees must fit it.

        Raises:
            UnsupportedSpaceError: If the shield has a risk for another number of actions than the agent has.
        """
        if isinstance(self.shield, MaskShield):
            self.shield.check_risks(seen, self.inner, self.name)
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
    check_names(by_agent, agents, "the environment, for a shield,")
    if not by_agent:
        raise ConfigError("Give at least one shield.")
    matched = {
        name: ShieldedAgent(name, by_agent[name], inner[name], observed[name])
        for name in agents
        if name in by_agent
    }
    for one in matched.values():
        _ = one.action_space, one.observation_space  # asks for both, so that a misfit shows here
    return matched
