"""Groups of equal agents: the learner of one agent mapped over all agents of its group.

A group of one agent runs the learner as it is. In a larger group every agent has its own parameters, stacked
along a leading axis, and acts and learns under one `vmap`.
"""

from typing import Any

import jax
from flax import struct
from jax import Array

from dressage.learning.proximal import Metrics, ProximalLearner
from dressage.learning.records import AgentState, Experience, Observed


class Group(struct.PyTreeNode):
    """Agents with equal spaces and one learner.

    Attributes:
        learner: What each of them is trained by.
        agents: Their names, in the environment's order.
    """

    learner: ProximalLearner
    agents: tuple[str, ...] = struct.field(pytree_node=False)

    @property
    def single(self) -> bool:
        """Whether records of this group have no agent axis."""
        return len(self.agents) == 1

    def init(self, key: Array, copies: int) -> AgentState:
        """Draw the state of every agent of the group."""
        if self.single:
            return self.learner.init(key, copies)
        keys = jax.random.split(key, len(self.agents))
        return jax.vmap(lambda agent_key: self.learner.init(agent_key, copies))(keys)

    def draw_noise(self, key: Array, steps: int, copies: int) -> Any:  # noqa: ANN401 (the distribution's own tree)
        """Draw the action noise of a whole rollout: leaves `[T, ..., B, ...]`."""
        batch = (steps, copies) if self.single else (steps, len(self.agents), copies)
        return self.learner.head.draw_noise(key, batch)

    def act(self, state: AgentState, observed: Observed, noise: Any) -> tuple[Any, Any]:  # noqa: ANN401
        """Choose actions for `[..., B]` observations.

        Returns:
            The actor's outputs and the actions as the policy emits them.
        """
        outputs = self.policy_outputs(state, observed)
        return outputs, self.distribution(outputs, observed).sample_from(noise)

    def policy_outputs(self, state: AgentState, observed: Observed) -> Any:  # noqa: ANN401
        """Apply every agent's actor to its raw observations `[..., B, obs_dim]`."""
        apply = self.learner.policy_outputs
        return apply(state, observed) if self.single else jax.vmap(apply)(state, observed)

    def distribution(self, outputs: Any, observed: Observed) -> Any:  # noqa: ANN401
        """The distribution over actions that actor outputs stand for."""
        return self.learner.head.distribution(outputs, observed.action_mask)

    def environment_actions(self, actions: Any) -> Any:  # noqa: ANN401
        """Map policy actions to the environment's own."""
        return self.learner.head.environment_action(actions)

    def learn(self, state: AgentState, experience: Experience, key: Array) -> tuple[AgentState, Metrics]:
        """Update every agent of the group from its rollout; metrics are scalars or `[A]`."""
        if self.single:
            return self.learner.learn(state, experience, key)
        keys = jax.random.split(key, len(self.agents))
        return jax.vmap(self.learner.learn, in_axes=(0, 1, 0))(state, experience, keys)
