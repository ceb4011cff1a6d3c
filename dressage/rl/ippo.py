"""Independent PPO: every agent learns from its own observations and rewards alone."""

from typing import Any

from dressage.learning.group_spaces import GroupSpaces
from dressage.learning.groups import Learner
from dressage.learning.specs import AgentSpec
from dressage.networks import ActorCritic
from dressage.rl.algorithm import Algorithm
from dressage.rl.environments import TrainingEnv
from dressage.rl.options import IPPO_OPTIONS as OPTIONS
from dressage.rl.proximal import check_proximal, proximal_learner, proximal_steps

__all__ = ["IPPO", "OPTIONS", "ActorCritic", "validate_ippo_config"]


class IPPO(Algorithm):
    """Independent proximal policy optimisation.

    Agents with equal spaces learn side by side, each with its own network (or one shared by all of them);
    agents with unlike spaces form groups of their own. Nothing is padded.

    Reference:
        de Witt et al. 2020, "Is Independent Learning All You Need in the StarCraft Multi-Agent Challenge?";
        Schulman et al. 2017, "Proximal Policy Optimization Algorithms".
    """

    NAME = "IPPO"
    OPTIONS = OPTIONS

    @classmethod
    def validate(cls, overrides: dict[str, Any] | None = None) -> dict[str, Any]:
        """Merge options with the defaults and check them; see `Algorithm.validate`."""
        return check_proximal(super().validate(overrides), cls.NAME)

    def make_learner(
        self, spec: AgentSpec, spaces: GroupSpaces, env: TrainingEnv, optimizer_steps: int
    ) -> Learner:
        """Return the clipped-surrogate learner of one agent; see `Algorithm.make_learner`."""
        return proximal_learner(self.config, spec, optimizer_steps)

    def optimizer_steps(self, timesteps: int, copies: int) -> int:
        """Return the optimiser applications that `timesteps` steps over `copies` copies make."""
        return proximal_steps(self.config, timesteps, copies)


def validate_ippo_config(overrides: dict[str, Any] | None = None) -> dict[str, Any]:
    """Merge and validate IPPO options, rejecting misspelled ones.

    Args:
        overrides: What differs from the defaults; None means nothing.

    Returns:
        Every option with its checked value.

    Raises:
        ConfigError: If an option is unknown (the text names the nearest known one), of the wrong type, out of
            its range, or contradicts another.
    """
    return IPPO.validate(overrides)
