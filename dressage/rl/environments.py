"""The environments that multi-agent learners take, as what the drivers step."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dressage.envs.functional import BaseEnv
from dressage.envs.multi_agent import MultiAgentEnv
from dressage.envs.multi_agent_checks import check_multi_agent_environment
from dressage.envs.wrappers.multi_agent_base import as_multi_agent
from dressage.errors import ConfigError
from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.grouped_env import ManyAgentsEnv
from dressage.learning.groups import Group
from dressage.learning.logged_run import CompiledLoggedRun, LoggedRun

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
        make_run: Makes a run from groups of learners and seeds.
    """

    groups: tuple[GroupSpaces, ...]
    has_costs: bool
    compiled: bool
    make_run: Callable[[tuple[Group, ...], tuple[int, ...]], LoggedRun]


def training_env(env: Any, config: dict[str, Any], owner: str) -> TrainingEnv:  # noqa: ANN401 (checked here)
    """Check an environment and prepare its copies.

    Args:
        env: A functional environment, a `ParallelEnv`, or a function without arguments that makes one.
        config: The learner's checked options.
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
    raise ConfigError(f"{owner} trains on {TAKEN}; got {type(env).__name__}.")


def _functional(env: MultiAgentEnv, config: dict[str, Any], owner: str) -> TrainingEnv:
    check_multi_agent_environment(env)
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
    return TrainingEnv(one.groups, one.has_costs, True, make_run)
