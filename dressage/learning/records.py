"""The records that drivers, learners and checkpoints exchange; time comes first, environment copies last.

`T` steps of a rollout, `B` environment copies, `A` agents of a group. The records of a group of one agent
have no agent axis; those of a larger group carry it between time and copies: `[T, A, B]`.
"""

from typing import Any

import jax.numpy as jnp
from flax import struct
from jax import Array

from dressage.equations.statistics import RunningMoments


class Observed(struct.PyTreeNode):
    """What an agent sees before it acts.

    Attributes:
        features: `[..., obs_dim]` float32, the flattened observation.
        action_mask: `[..., outputs]` bool, True where a discrete choice is legal; None without masks.
        memory: What a recurrent network remembers before it sees this, `[..., units]` each; zeros at an
            episode's start. None for networks without memory.
    """

    features: Array
    action_mask: Array | None = None
    memory: Any = None


class Outcome(struct.PyTreeNode):
    """What one step of `B` environment copies brought one group of agents.

    Attributes:
        observed: What to act on next, after any reset.
        final_features: `[..., B, obs_dim]`, what the action really led to, before any reset.
        rewards: `[..., B]` float32.
        terminated: `[..., B]` bool, no value lies behind this step.
        episode_ends: `[..., B]` bool, the episode stopped here for any reason.
        episode_returns: `[..., B]` undiscounted sum of the episode's rewards so far, this one included.
        episode_lengths: `[..., B]` int32, steps of the episode so far, this one included.
        valid: `[..., B]` bool, False where the step is no sample (an ignored action, an absent agent); None
            where every step is one.
        info: What the environment says besides, of the step itself; kept in evaluations only.
        costs: `[..., B]` float32 costs; None where the environment knows none.
        episode_costs: `[..., B]` undiscounted sum of the episode's costs so far, this one included.
        copy_ends: `[..., B]` bool, whether the copy as a whole ended: nobody is left in it. Equal for all
            agents; None where one agent's end is the copy's.
        copy_lengths: `[..., B]` int32, steps of the copy's episode so far, this one included.
        intervened: `[..., B]` bool, whether a shield did something else than the agent proposed; None without
            shields.
    """

    observed: Observed
    final_features: Array
    rewards: Array
    terminated: Array
    episode_ends: Array
    episode_returns: Array
    episode_lengths: Array
    valid: Array | None = None
    info: Any = None
    costs: Array | None = None
    episode_costs: Array | None = None
    copy_ends: Array | None = None
    copy_lengths: Array | None = None
    intervened: Array | None = None


class Experience(struct.PyTreeNode):
    """A rollout of one group: what was seen, done and brought about, `T` steps.

    Attributes:
        observed: What the action of each step was chosen on.
        policy_outputs: What the actor said of it: head outputs `[T, ..., B, outputs]` and log standard
            deviations.
        actions: The actions as the policy emitted them, before clipping, squashing or start offsets.
        outcome: What each step led to; its `observed` is dropped, since the next row holds it.
    """

    observed: Observed
    policy_outputs: tuple[Array, Array | None]
    actions: Any
    outcome: Outcome


class AgentState(struct.PyTreeNode):
    """All that one group learns and remembers; arrays of a group of `A` agents lead with `[A]`.

    Attributes:
        params: The network's parameters.
        opt_state: The optimiser's state over the flat vector of all parameters.
        learning_rate: `[]` the rate that the next optimiser application uses, before annealing.
        optimizer_steps: `[]` int32, scheduled applications so far.
        observation_moments: Statistics of raw observations, or None.
        reward_moments: Statistics of discounted returns that scale rewards, or None.
        discounted_returns: `[B]` the running discounted return of every copy, or None.
        constraint: What a learner under a cost limit keeps besides, a `learning.constraint.Constraint`; None
            without a limit.
    """

    params: Any
    opt_state: Any
    learning_rate: Array
    optimizer_steps: Array
    observation_moments: RunningMoments | None = None
    reward_moments: RunningMoments | None = None
    discounted_returns: Array | None = None
    constraint: Any = None


class Fault(struct.PyTreeNode):
    """The first non-finite number that came from an environment; all fields are int32 scalars.

    Attributes:
        field: 0 for none, else one more than the index in `FAULT_FIELDS`.
        group: Index of the group.
        agent: Index of the agent in its group.
        environment: Index of the environment copy.
        step: Steps of that copy since training began, from 0.
    """

    field: Array
    group: Array
    agent: Array
    environment: Array
    step: Array

    @classmethod
    def none(cls) -> "Fault":
        """A record that says that nothing has gone wrong."""
        # One array a field: the state is donated, and no buffer may be donated twice.
        return cls(*(jnp.zeros((), jnp.int32) for _ in range(5)))


FAULT_FIELDS = ("observation", "final observation", "reward", "action", "cost", "action mask")


class LearnerState(struct.PyTreeNode):
    """The whole state of training: this tree is the checkpoint.

    Attributes:
        agents: One `AgentState` a group.
        environment: The state of the environment copies; an empty tuple where it lives on the host.
        observed: What each group acts on next.
        key: The random key of everything that is still to come.
        updates: `[]` int32, updates made.
        fault: What went wrong first; parameters are frozen from there on.
    """

    agents: tuple[AgentState, ...]
    environment: Any
    observed: tuple[Observed, ...]
    key: Array
    updates: Array
    fault: Fault
