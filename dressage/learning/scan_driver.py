"""The compiled driver: rollouts and updates of functional environments as one program.

`advance` is the chunk that everything is built of: the command line calls it between progress reports, and
`ppo.train` calls it between evaluations inside one larger program; both give the same numbers.
"""

from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax import Array, lax

from dressage.learning.faults import latch_fault
from dressage.learning.groups import Group
from dressage.learning.metrics import ChunkSums
from dressage.learning.proximal import METRIC_NAMES, Metrics
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
    return LearnerState(agents, environment, observed, key, jnp.int32(0), Fault.none())


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
    """Return the sums of no updates, with per-agent metrics `[]` or `[A]` for each group."""
    shapes = tuple(() if group.single else (len(group.agents),) for group in groups)
    return ChunkSums.zeros(METRIC_NAMES, shapes)


def update(
    env: GroupedEnv, groups: Groups, steps: int, state: LearnerState
) -> tuple[LearnerState, tuple[Metrics, ...], tuple[Experience, ...]]:
    """Collect one rollout and learn from it."""
    key, noise_keys, shuffle_keys = update_keys(state.key, len(groups))
    noise = draw_noise(groups, noise_keys, steps, env.copies)
    environment, observed, rollouts = collect(env, groups, state, noise)
    fault = latch_fault(state.fault, rollouts, state.updates)
    agents, learning = learn(groups, state.agents, rollouts, shuffle_keys, fault)
    after = LearnerState(agents, environment, observed, key, state.updates + 1, fault)
    return after, learning, rollouts


def update_keys(key: Array, groups: int) -> tuple[Array, Array, Array]:
    """Split the run's key into the next one and, a group, one for action noise and one for shuffles."""
    keys = jax.random.split(key, 1 + 2 * groups)
    return keys[0], keys[1 : 1 + groups], keys[1 + groups :]


def draw_noise(groups: Groups, keys: Array, steps: int, copies: int) -> tuple[Any, ...]:
    """Draw every group's action noise for a whole rollout at once."""
    return tuple(group.draw_noise(key, steps, copies) for group, key in zip(groups, keys, strict=True))


def collect(
    env: GroupedEnv, groups: Groups, state: LearnerState, noise: tuple[Any, ...]
) -> tuple[Any, tuple[Observed, ...], tuple[Experience, ...]]:
    """Step every copy through one rollout; only actors run here, critics later over the whole rollout."""

    def step(carry: tuple[Any, tuple[Observed, ...]], noise: tuple[Any, ...]) -> Any:  # noqa: ANN401
        environment, observed = carry
        outputs, actions, taken = act(groups, state.agents, observed, noise)
        environment, outcomes = env.step(environment, taken)
        following = tuple(outcome.observed for outcome in outcomes)
        return (environment, following), record_rows(observed, outputs, actions, outcomes)

    (environment, observed), rollouts = lax.scan(step, (state.environment, state.observed), noise)
    return environment, observed, rollouts


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
) -> tuple[tuple[Any, ...], tuple[Any, ...], tuple[Array, ...]]:
    """Choose every group's actions; returns actor outputs, policy actions and environment actions."""
    rows = zip(groups, agents, observed, noise, strict=True)
    chosen = [group.act(agent, seen, drawn) for group, agent, seen, drawn in rows]
    taken = tuple(
        group.environment_actions(action) for group, (_, action) in zip(groups, chosen, strict=True)
    )
    return tuple(outputs for outputs, _ in chosen), tuple(actions for _, actions in chosen), taken


def learn(
    groups: Groups,
    agents: tuple[AgentState, ...],
    rollouts: tuple[Experience, ...],
    keys: Array,
    fault: Fault,
) -> tuple[tuple[AgentState, ...], tuple[Metrics, ...]]:
    """Update every group, unless a fault is latched: then all agents stay as they are."""
    rows = zip(groups, agents, rollouts, keys, strict=True)
    learned = [group.learn(agent, rollout, key) for group, agent, rollout, key in rows]
    sound = fault.field == 0
    kept = jax.tree.map(
        lambda new, old: jnp.where(sound, new, old), tuple(agent for agent, _ in learned), agents
    )
    return kept, tuple(metrics for _, metrics in learned)
