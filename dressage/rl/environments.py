"""The environments that multi-agent learners take, as what the drivers step."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from dressage.envs.functional import BaseEnv
from dressage.envs.multi_agent import COST, MultiAgentEnv
from dressage.envs.multi_agent_checks import (
    agents_told,
    agents_with_costs,
    check_multi_agent_environment,
)
from dressage.envs.wrappers.cost import CostUnder
from dressage.envs.wrappers.multi_agent_base import as_multi_agent
from dressage.errors import ConfigError, EnvironmentContractError
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.grouped_env import ManyAgentsEnv
from dressage.learning.groups import Group
from dressage.learning.host_env import HostGroupedEnv, host_many_agents_env
from dressage.learning.logged_run import CompiledLoggedRun, HostLoggedRun, LoggedRun
from dressage.workers import ACTION_MASK, make_workers, parallel_layout
from dressage.workers.making import env_maker

TAKEN = (
    "a functional environment (MultiAgentEnv or BaseEnv), a PettingZoo ParallelEnv, or a function without "
    "arguments that makes one"
)


@dataclass(frozen=True)
class TrainingEnv:
    """An environment that was checked, and how runs over it are made.

    Attributes:
        groups: The spaces of each group of equal agents.
        has_costs: Whether it reports costs.
        compiled: Whether the whole of training over it is one compiled program.
        copies: How many copies step in parallel.
        make_run: Makes a run from groups of learners and seeds.
        single: Whether there is only the one copy that the user gave.
    """

    groups: tuple[GroupSpaces, ...]
    has_costs: bool
    compiled: bool
    copies: int
    make_run: Callable[[tuple[Group, ...], tuple[int, ...]], LoggedRun]
    single: bool = False


def training_env(
    env: Any,  # noqa: ANN401 (checked here)
    config: dict[str, Any],
    given: Collection[str],
    owner: str,
) -> TrainingEnv:
    """Check an environment and prepare its copies.

    Args:
        env: A functional environment, a `ParallelEnv`, or a function without arguments that makes one. Of a
            `ParallelEnv` itself there is one copy, unless more were asked for, which is refused.
        config: The learner's checked options.
        given: Names of the options that the user gave.
        owner: The learner's name, for error texts.

    Raises:
        ConfigError: If it is none of these, or options do not fit it.
        EnvironmentContractError: If it breaks its contract.
        UnsupportedSpaceError: If an agent's space is not supported.
    """
    if isinstance(env, BaseEnv):
        env = as_multi_agent(env)
    if isinstance(env, MultiAgentEnv):
        return _functional(env, config, owner)
    if is_parallel_env(env):
        return _one_copy(env, config, given, owner)
    if callable(env):
        return _host(env, config, config["num_envs"])
    raise ConfigError(f"{owner} trains on {TAKEN}; got {type(env).__name__}.")


def _functional(env: MultiAgentEnv, config: dict[str, Any], owner: str) -> TrainingEnv:
    check_multi_agent_environment(env)
    _refuse_masks_in_infos(env)
    env = _with_costs(env, config)
    if config["num_workers"]:
        raise ConfigError(
            f"{owner} option 'num_workers' is for host environments; a functional one is compiled and steps "
            f"all copies in one program. Leave it at 0 (got {config['num_workers']})."
        )
    steps, copies = config["rollout_length"], config["num_envs"]

    def make_env(number: int) -> ManyAgentsEnv:
        return ManyAgentsEnv(env, number)

    def make_run(groups: tuple[Group, ...], seeds: tuple[int, ...]) -> LoggedRun:
        return CompiledLoggedRun(make_env, groups, steps, copies, seeds, env.max_steps)

    one = make_env(1)
    return TrainingEnv(one.groups, one.has_costs, True, copies, make_run)


def _with_costs(env: MultiAgentEnv, config: dict[str, Any]) -> MultiAgentEnv:
    """Bring each agent's cost to its place, for learners that have a limit to hold."""
    if "cost_key" not in config:
        return env
    key, default = config["cost_key"], config["cost_default"]
    if key == COST and agents_with_costs(env) == env.possible_agents:
        return env
    priced = CostUnder(env, key, default)
    agents_with_costs(priced)  # Traces a step: what is missing without a default is refused here.
    return priced


def _refuse_masks_in_infos(env: MultiAgentEnv) -> None:
    masked = agents_told(env, ACTION_MASK)
    if masked:
        raise EnvironmentContractError(
            f"{type(env).__name__} has the {ACTION_MASK!r} of agent {masked[0]!r} in its info; a functional "
            f"environment has it in the observation, a Dict with {ACTION_MASK!r} and one part besides."
        )


def _one_copy(env: Any, config: dict[str, Any], given: Collection[str], owner: str) -> TrainingEnv:  # noqa: ANN401
    for name in ("num_envs", "num_workers"):
        if name in given and config[name] > (name == "num_envs"):
            raise ConfigError(
                f"{owner} option {name!r} is {config[name]}, but of the {type(env).__name__} given there is "
                "only one. Give a function without arguments that makes one, or leave the option out."
            )
    return _host(_Once(env), config, 1)


def _host(make_env: Callable[[], Any], config: dict[str, Any], copies: int) -> TrainingEnv:
    maker = env_maker(make_env)
    probe = maker()
    costs = config.get("cost_key", COST), config.get("cost_default", 0.0)
    reported = "cost_key" not in config  # No limit depends on costs: what is none is not worth a stop.
    layout = parallel_layout(probe, cost_key=costs[0], cost_default=costs[1], costs_reported=reported)
    groups = tuple(
        GroupSpaces.of(
            group.agents, probe.observation_space(group.agents[0]), probe.action_space(group.agents[0])
        )
        for group in layout.groups
    )
    workers, timeout = min(config["num_workers"], copies), config["worker_timeout"]
    if not isinstance(make_env, _Once):
        probe.close()

    def make_copies(number: int) -> HostGroupedEnv:
        return host_many_agents_env(
            make_workers(make_env, number, layout, num_workers=min(workers, number), timeout=timeout)
        )

    def make_run(learners: tuple[Group, ...], seeds: tuple[int, ...]) -> LoggedRun:
        return HostLoggedRun(make_copies, learners, config["rollout_length"], copies, seeds[0], None)

    return TrainingEnv(groups, True, False, copies, make_run, isinstance(make_env, _Once))


class _Once:
    """Hands out the one environment that the user gave."""

    def __init__(self, env: Any) -> None:  # noqa: ANN401
        self._env = env

    def __call__(self) -> Any:  # noqa: ANN401
        return self._env


def is_parallel_env(env: Any) -> bool:  # noqa: ANN401
    """Whether something has the face of a PettingZoo `ParallelEnv`."""
    return not isinstance(env, type) and hasattr(env, "possible_agents") and hasattr(env, "step")
