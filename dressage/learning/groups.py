"""Groups of equal agents: the learner of one agent mapped over all agents of its group.

A group of one agent runs the learner as it is. In a larger group every agent has its own parameters, stacked
along a leading axis, and acts and learns under one `vmap`; or all of them share one set of parameters, and
their copies are samples of one learner.
"""

from typing import Any, Protocol, Self

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import Array

from dressage.learning.policy_head import PolicyHead
from dressage.learning.records import AgentState, Experience, Observed


class Learner(Protocol):
    """What trains one agent; a pytree whose leaves are traced hyper-parameters."""

    @property
    def head(self) -> PolicyHead:
        """How outputs become distributions and actions."""
        ...

    @property
    def metric_names(self) -> tuple[str, ...]:
        """What `learn` reports."""
        ...

    @property
    def minibatches(self) -> int:
        """Parts into which a pass over a rollout is cut."""
        ...

    def for_agent(self, place: Array | int) -> Self:
        """Return the learner of one agent, by its place in the group: hyper-parameters may differ."""
        ...

    def init(self, key: Array, copies: int) -> AgentState:
        """Draw parameters and lay out the state for `copies` environment copies."""
        ...

    def start_memory(self, batch: tuple[int, ...]) -> Any:  # noqa: ANN401 (the network's own tree)
        """Return what the policy remembers at an episode's start; None without memory."""
        ...

    def step_policy(self, state: AgentState, observed: Observed) -> tuple[Any, Any]:
        """Apply the actor to raw observations; returns the memory after them and the actor's outputs."""
        ...

    def learn(
        self, state: AgentState, experience: Experience, key: Array, rows: np.ndarray | None = None
    ) -> tuple[AgentState, dict[str, Array]]:
        """Update from `[T, B]` records; returns the agent after and scalar metrics."""
        ...


class Group(struct.PyTreeNode):
    """Agents with equal spaces and one learner.

    Attributes:
        learner: What each of them is trained by.
        agents: Their names, in the environment's order.
        shared: Whether they share one set of parameters.
    """

    learner: Learner
    agents: tuple[str, ...] = struct.field(pytree_node=False)
    shared: bool = struct.field(pytree_node=False, default=False)

    @property
    def single(self) -> bool:
        """Whether records of this group have no agent axis."""
        return len(self.agents) == 1

    @property
    def stacked(self) -> bool:
        """Whether states and learning metrics of this group have an agent axis."""
        return not (self.single or self.shared)

    @property
    def metric_shape(self) -> tuple[int, ...]:
        """Shape of a learning metric."""
        return (len(self.agents),) if self.stacked else ()

    def batch_shape(self, copies: int) -> tuple[int, ...]:
        """Shape of one step's records: `(B,)` or `(A, B)`."""
        return (copies,) if self.single else (len(self.agents), copies)

    def minibatch_size(self, steps: int, copies: int) -> int:
        """Samples of a minibatch of `steps` steps, of all agents that learn side by side."""
        return -(-steps * copies * len(self.agents) // self.learner.minibatches)

    def init(self, key: Array, copies: int) -> AgentState:
        """Draw the state of every agent of the group."""
        if self.single:
            return self.learner.init(key, copies)
        if self.shared:
            return self.learner.init(key, len(self.agents) * copies)
        keys = jax.random.split(key, len(self.agents))
        return jax.vmap(lambda agent_key: self.learner.init(agent_key, copies))(keys)

    def begin(self, observed: Observed, copies: int) -> Observed:
        """Give first observations the memory of an episode's start."""
        return observed.replace(memory=self.learner.start_memory(self.batch_shape(copies)))

    def draw_noise(self, key: Array, steps: int, copies: int) -> Any:  # noqa: ANN401 (the distribution's own tree)
        """Draw the action noise of a whole rollout: leaves `[T, ..., B, ...]`."""
        return self.learner.head.draw_noise(key, (steps, *self.batch_shape(copies)))

    def act(self, state: AgentState, observed: Observed, noise: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401
        """Choose actions for `[..., B]` observations.

        Returns:
            The memory after them, the actor's outputs, and the actions as the policy emits them.
        """
        memory, outputs = self.step_policy(state, observed)
        return memory, outputs, self.distribution(outputs, observed).sample_from(noise)

    def step_policy(self, state: AgentState, observed: Observed) -> tuple[Any, Any]:
        """Apply every agent's actor to its raw observations `[..., B, obs_dim]`."""
        apply = self.learner.step_policy
        return jax.vmap(apply)(state, observed) if self.stacked else apply(state, observed)

    def distribution(self, outputs: Any, observed: Observed) -> Any:  # noqa: ANN401
        """The distribution over actions that actor outputs stand for."""
        return self.learner.head.distribution(outputs, observed.action_mask)

    def environment_actions(self, actions: Any) -> Any:  # noqa: ANN401
        """Map policy actions to the environment's own."""
        return self.learner.head.environment_action(actions)

    def learn(
        self, state: AgentState, experience: Experience, key: Array, surplus: int = 0
    ) -> tuple[AgentState, dict[str, Array]]:
        """Update every agent of the group from its rollout.

        Args:
            state: The group's state.
            experience: `[T, ..., B]` records.
            key: The random key of the shuffles.
            surplus: How many copies, counted from the last, made no step in the rollout's last row.

        Returns:
            The state after, and metrics, scalars or `[A]`.
        """
        steps, copies = experience.outcome.rewards.shape[0], experience.outcome.rewards.shape[-1]
        if not self.stacked:
            agents = len(self.agents)
            merged = experience if self.single else jax.tree.map(_merge_agents, experience)
            rows = _sampled_rows(steps, agents, copies, surplus)
            return self.learner.for_agent(0).learn(state, merged, key, rows)
        keys = jax.random.split(key, len(self.agents))
        rows = _sampled_rows(steps, 1, copies, surplus)

        def learn(
            place: Array, state: AgentState, experience: Experience, key: Array
        ) -> tuple[AgentState, Any]:
            return self.learner.for_agent(place).learn(state, experience, key, rows)

        places = jnp.arange(len(self.agents))
        return jax.vmap(learn, in_axes=(0, 0, 1, 0))(places, state, experience, keys)

    def agent_state(self, state: AgentState, index: int) -> AgentState:
        """Return the state of one agent of the group."""
        if not self.stacked:
            return state
        one: AgentState = jax.tree.map(lambda leaf: leaf[index], state)
        return one


def _merge_agents(leaf: Array) -> Array:
    """Turn `[T, A, B, ...]` into `[T, A * B, ...]`."""
    return jnp.reshape(leaf, (leaf.shape[0], -1, *leaf.shape[3:]))


def _sampled_rows(steps: int, agents: int, copies: int, surplus: int) -> np.ndarray | None:
    """Return which of the rows of `[T, A, B]` are steps that were made; None for all of them."""
    if surplus == 0:
        return None
    made = np.ones((steps, agents, copies), bool)
    made[-1, :, copies - surplus :] = False
    return np.flatnonzero(made.ravel())
