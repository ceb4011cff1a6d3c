"""The compiled driver: rollouts and updates of functional environments as one program.

`advance` is the chunk that everything is built of: the command line calls it between progress reports, and
`ppo.train` calls it between evaluations inside one larger program; both give the same numbers.
"""

from typing import Any, Protocol, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax

from dressage.kernels import swift
from dressage.learning.faults import latch_fault
from dressage.learning.groups import Group
from dressage.learning.metrics import ChunkSums
from dressage.learning.proximal import Metrics
from dressage.learning.records import AgentState, Experience, Fault, LearnerState, Observed, Outcome

Groups = tuple[Group, ...]


class GroupedEnv(Protocol):
    """A vector of functional environments; see `learning.grouped_env`."""

    copies: int

    def reset(self, key: Array) -> tuple[Any, tuple[Observed, ...]]:
        """Start every copy."""
        ...

    def step(self, state: Any, actions: tuple[Array, ...]) -> tuple[Any, tuple[Outcome, ...]]:  # noqa: ANN401
        """Step every copy with one array of environment actions a group."""
        ...


def init(env: GroupedEnv, groups: Groups, key: Array) -> LearnerState:
    """Draw parameters and start the environments."""
    keys = jax.random.split(key, 2 + len(groups))
    environment, observed = env.reset(keys[1])
    return start(groups, env.copies, environment, observed, keys[0], keys[2:])


def start(
    groups: Groups,
    copies: int,
    environment: Any,  # noqa: ANN401 (the environments' own tree)
    observed: tuple[Observed, ...],
    key: Array,
    group_keys: Array,
) -> LearnerState:
    """Lay out the state of training around environments that have been reset."""
    agents = tuple(group.init(group_key, copies) for group, group_key in zip(groups, group_keys, strict=True))
    observed = tuple(group.begin(seen, copies) for group, seen in zip(groups, observed, strict=True))
    return LearnerState(agents, environment, observed, key, jnp.int32(0), Fault.none())


def restart(env: GroupedEnv, groups: Groups, state: LearnerState) -> LearnerState:
    """Return the state with every copy at the start of a new episode."""
    environment, observed = env.reset(restart_key(state))
    observed = tuple(group.begin(seen, env.copies) for group, seen in zip(groups, observed, strict=True))
    agents = forget_open_episodes(state.agents)
    return state.replace(agents=agents, environment=environment, observed=observed)


def forget_open_episodes(agents: tuple[AgentState, ...]) -> tuple[AgentState, ...]:
    """Start anew what agents sum over an episode."""

    def one(agent: AgentState) -> AgentState:
        sums, limit = agent.discounted_returns, agent.constraint
        return agent.replace(
            discounted_returns=None if sums is None else jnp.zeros_like(sums),
            constraint=None if limit is None else limit.restart(),
        )

    return tuple(one(agent) for agent in agents)


def restart_key(state: LearnerState) -> Array:
    """Return what environments that start anew draw from; the run's own key stays as it is."""
    return jax.random.fold_in(state.key, state.updates)


def advance(
    env: GroupedEnv, groups: Groups, steps: int, state: LearnerState, updates: Array
) -> tuple[LearnerState, ChunkSums]:
    """Make `updates` updates, each from a rollout of `steps` steps of every copy.

    Args:
        env: The environment copies.
        groups: The agents and their learners.
        steps: Steps a rollout, `T`.
        state: The state before.
        updates: `[]` int32, how many; a traced number, so that one program serves every chunk.

    Returns:
        The state after, and the sums that `ChunkSums.means` turns into metrics.
    """

    def one_update(_: Array, carry: tuple[LearnerState, ChunkSums]) -> tuple[LearnerState, ChunkSums]:
        state, sums = carry
        state, learning, rollouts = update(env, groups, steps, state)
        return state, sums.add(learning, rollouts)

    state, sums = lax.fori_loop(0, updates, one_update, (state, no_sums(groups)))
    return state, sums


def no_sums(groups: Groups) -> ChunkSums:
    """Return the sums of no updates."""
    learning = tuple(
        {name: jnp.zeros(group.metric_shape) for name in group.learner.metric_names} for group in groups
    )
    return ChunkSums.zeros(learning, tuple(group.batch_shape(1)[:-1] for group in groups))


def update(
    env: GroupedEnv, groups: Groups, steps: int, state: LearnerState, surplus: int = 0
) -> tuple[LearnerState, tuple[Metrics, ...], tuple[Experience, ...]]:
    """Collect one rollout and learn from it.

    Args:
        env: The environment copies.
        groups: The agents and their learners.
        steps: Steps a rollout, `T`.
        state: The state before.
        surplus: How many copies, counted from the last, rest in the rollout's last step.
    """
    key, noise_keys, shuffle_keys = update_keys(state.key, len(groups))
    noise = draw_noise(groups, noise_keys, steps, env.copies)
    environment, observed, rollouts = collect(env, groups, state, noise, surplus)
    fault = latch_fault(state.fault, rollouts, state.updates, categories(groups))
    agents, learning = learn(groups, state.agents, rollouts, shuffle_keys, fault, surplus)
    after = LearnerState(agents, environment, observed, key, state.updates + 1, fault)
    return after, learning, rollouts


def categories(groups: Groups) -> tuple[tuple[int, ...], ...]:
    """Return the categories of each group's discrete components."""
    return tuple(group.learner.head.spec.action_nvec for group in groups)


def minibatch_size(groups: Groups, steps: int, copies: int, seeds: int = 1) -> int:
    """Samples of the largest group's minibatch, over all seeds that are vmapped."""
    return seeds * max(group.minibatch_size(steps, copies) for group in groups)


def update_keys(key: Array, groups: int) -> tuple[Array, Array, Array]:
    """Split the run's key into the next one and, a group, one for action noise and one for shuffles."""
    keys = jax.random.split(key, 1 + 2 * groups)
    return keys[0], keys[1 : 1 + groups], keys[1 + groups :]


def draw_noise(groups: Groups, keys: Array, steps: int, copies: int) -> tuple[Any, ...]:
    """Draw every group's action noise for a whole rollout at once."""
    return tuple(group.draw_noise(swift(key), steps, copies) for group, key in zip(groups, keys, strict=True))


def collect(
    env: GroupedEnv, groups: Groups, state: LearnerState, noise: tuple[Any, ...], surplus: int = 0
) -> tuple[Any, tuple[Observed, ...], tuple[Experience, ...]]:
    """Step every copy through one rollout; only actors run here, critics later over the whole rollout."""
    Carry: TypeAlias = tuple[Any, tuple[Observed, ...]]

    def step(carry: Carry, noise: tuple[Any, ...]) -> tuple[Carry, tuple[Experience, ...]]:
        environment, observed = carry
        outputs, actions, taken, memories = act(groups, state.agents, observed, noise)
        environment, outcomes = env.step(environment, taken)
        following = remember(outcomes, memories)
        return (environment, following), record_rows(observed, outputs, actions, outcomes)

    if surplus == 0:
        (environment, observed), rollouts = lax.scan(step, (state.environment, state.observed), noise)
        return environment, observed, rollouts
    made = jnp.arange(env.copies) < env.copies - surplus
    whole = jax.tree.map(lambda leaf: leaf[:-1], noise)
    before, rollouts = lax.scan(step, (state.environment, state.observed), whole)
    after, last = step(before, jax.tree.map(lambda leaf: leaf[-1], noise))
    rollouts = rest(rollouts, jnp.ones_like(made))
    rollouts = jax.tree.map(lambda rows, row: jnp.concatenate([rows, row[None]]), rollouts, rest(last, made))
    environment = keep_resting(made, after[0], before[0], axis=0)
    observed = tuple(
        keep_resting(made, new, old, axis=0 if group.single else 1)
        for group, new, old in zip(groups, after[1], before[1], strict=True)
    )
    return environment, observed, rollouts


def remember(outcomes: tuple[Outcome, ...], memories: tuple[Any, ...]) -> tuple[Observed, ...]:
    """Return what each group acts on next, with the memory to act on it; behind an end, memory is empty."""
    return tuple(
        outcome.observed if memory is None else recall(outcome.observed, memory, broken_off(outcome))
        for outcome, memory in zip(outcomes, memories, strict=True)
    )


def recall(observed: Observed, memory: Any, over: Array) -> Observed:  # noqa: ANN401 (any tree of arrays)
    """Put the memory after acting to what is seen next; empty where `over`, `[..., B]`."""
    kept = jax.tree.map(lambda units: jnp.where(over[..., None], 0.0, units), memory)
    return observed.replace(memory=kept)


def broken_off(outcome: Outcome) -> Array:
    """Return where nothing is to be remembered, `[..., B]` bool: an episode ended, or no agent was there."""
    return outcome.episode_ends if outcome.valid is None else outcome.episode_ends | ~outcome.valid


def record_rows(
    observed: tuple[Observed, ...],
    outputs: tuple[Any, ...],
    actions: tuple[Any, ...],
    outcomes: tuple[Outcome, ...],
) -> tuple[Experience, ...]:
    """Join what was seen, chosen and brought about in one step to one row a group."""
    rows = zip(observed, outputs, actions, outcomes, strict=True)
    return tuple(
        Experience(seen, output, action, outcome.replace(observed=None, info=None))
        for seen, output, action, outcome in rows
    )


def act(
    groups: Groups, agents: tuple[AgentState, ...], observed: tuple[Observed, ...], noise: tuple[Any, ...]
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]:
    """Choose every group's actions.

    Returns:
        Actor outputs, policy actions, environment actions, and memories after acting.
    """
    rows = zip(groups, agents, observed, noise, strict=True)
    chosen = [group.act(agent, seen, drawn) for group, agent, seen, drawn in rows]
    memories, outputs, actions = zip(*chosen, strict=True)
    pairs = zip(groups, actions, strict=True)
    taken = tuple(group.environment_actions(action) for group, action in pairs)
    return outputs, actions, taken, memories


def learn(
    groups: Groups,
    agents: tuple[AgentState, ...],
    rollouts: tuple[Experience, ...],
    keys: Array,
    fault: Fault,
    surplus: int = 0,
) -> tuple[tuple[AgentState, ...], tuple[Metrics, ...]]:
    """Update every group, unless a fault is latched: then all agents stay as they are."""
    rows = zip(groups, agents, rollouts, keys, strict=True)
    learned = [group.learn(agent, rollout, key, surplus) for group, agent, rollout, key in rows]
    sound = fault.field == 0
    kept = jax.tree.map(
        lambda new, old: jnp.where(sound, new, old), tuple(agent for agent, _ in learned), agents
    )
    return kept, tuple(metrics for _, metrics in learned)


def rest(outcomes: tuple[Experience, ...], made: Array) -> tuple[Experience, ...]:
    """Mark the copies that rest in rows `[..., B]` as no samples."""

    def one(row: Experience) -> Experience:
        outcome = row.outcome
        valid = jnp.broadcast_to(made, outcome.rewards.shape)
        valid = valid if outcome.valid is None else outcome.valid & valid
        over = None if outcome.copy_ends is None else outcome.copy_ends & made
        ends, terminated = outcome.episode_ends & made, outcome.terminated & made
        flags = {"episode_ends": ends, "terminated": terminated, "copy_ends": over}
        return row.replace(outcome=outcome.replace(valid=valid, **flags))

    return tuple(one(row) for row in outcomes)


def keep_resting(made: Array, new: Any, old: Any, axis: int) -> Any:  # noqa: ANN401 (any tree of arrays)
    """Take over only what belongs to copies that made the step; copies lie along `axis`."""

    def one(new: Array, old: Array) -> Array:
        return jnp.where(made.reshape(-1, *(1,) * (new.ndim - axis - 1)), new, old)

    return jax.tree.map(one, new, old)
