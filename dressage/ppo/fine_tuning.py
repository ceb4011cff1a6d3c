"""Going on with the training of a shipped policy, in its own task or in another with the same spaces."""

from typing import Any

from dressage.errors import ConfigError
from dressage.learning.fine_tuning import with_policy
from dressage.learning.records import LearnerState
from dressage.learning.specs import AgentSpec
from dressage.ppo.config import Config
from dressage.ppo.policy import Policy

SPACES = (
    "obs_dim",
    "action_kind",
    "action_nvec",
    "action_start",
    "action_shape",
    "action_low",
    "action_high",
)


def options_of(policy: Policy) -> dict[str, Any]:
    """Return the options that a policy was made with, as far as its networks show them."""
    hidden = policy.hidden_sizes("actor")
    options = {
        "NUM_HIDDEN_LAYERS": len(hidden),
        "HIDDEN_ACTIVATION": policy.hidden_activation,
        "NORMALIZE_ENV": policy.obs_scaling is not None,
    }
    if hidden:
        options["NUM_HIDDEN_UNITS"] = hidden[0]
    if policy.act_scaling is not None:
        options |= {
            "SQUASH": policy.act_scaling.squash,
            "STATE_INDEPENDENT_STD": policy.state_independent_std,
        }
    return options


def check_fits(policy: Policy, spec: AgentSpec, config: Config) -> None:
    """Refuse a policy that a task or a configuration does not fit.

    Raises:
        ConfigError: If spaces or options differ; the text names each with both values.
    """
    own = policy.agent_spec()
    spaces = [
        f"{name} is {getattr(own, name)} there and {getattr(spec, name)} here"
        for name in SPACES
        if getattr(own, name) != getattr(spec, name)
    ]
    if spaces:
        raise ConfigError(f"The policy was trained for other spaces: {'; '.join(spaces)}.")
    options = [
        f"{name} is {value} there and {getattr(config, name)} here"
        for name, value in options_of(policy).items()
        if getattr(config, name) != value
    ]
    if options:
        raise ConfigError(
            f"The policy was trained with other options: {'; '.join(options)}. "
            "Leave them as the policy has them."
        )


def start_from(state: Any, policy: Policy, *, keep_statistics: bool) -> Any:  # noqa: ANN401 (any run's state)
    """Put a policy's parameters into a fresh state, of every seed.

    A policy without critic leaves the fresh one in place.
    """
    if not isinstance(state, LearnerState):
        return tuple(start_from(one, policy, keep_statistics=keep_statistics) for one in state)
    scaling = policy.obs_scaling if keep_statistics else None
    agent = with_policy(state.agents[0], policy.model, None if scaling is None else scaling.moments())
    return state.replace(agents=(agent, *state.agents[1:]))
