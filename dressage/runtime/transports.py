"""Chooses how workers are reached. What a transport needs is imported when it is chosen."""

import importlib.util

from dressage.errors import MissingExtraError, install_command
from dressage.policy.base_policy import PolicyConfig
from dressage.runtime.config import RuntimeConfig
from dressage.runtime.inline import InlineTransport
from dressage.runtime.records import RunSpec, Transport


def make_transport(spec: RunSpec, config: RuntimeConfig) -> Transport:
    """Return the transport that a configuration names; no worker is started yet.

    Raises:
        ConfigError: If what is to be trained can't be sent to another process.
        MissingExtraError: If Ray is named and not installed.
    """
    if config.chosen_transport == "processes":
        from dressage.runtime.processes import ProcessTransport

        return ProcessTransport(spec, config)
    if config.chosen_transport == "ray":
        if importlib.util.find_spec("ray") is None:
            raise MissingExtraError(f"A cluster needs Ray. Install it with: {install_command('ray')}")
        from dressage.runtime.ray_transport import RayTransport

        return RayTransport(spec, config)
    return InlineTransport(spec, shares_stream=shares_stream(spec.policy_config, config))


def shares_stream(policy: PolicyConfig, config: RuntimeConfig) -> bool:
    """Whether worker and learner draw from one random stream: a single worker of a synchronous run does.

    That is what rsl_rl's runner does. The stream travels with weights and fragments where the two live in
    different processes, so that a run is the same wherever its worker is.
    """
    return config.workers == 1 and policy.rollout_mode == "sync"
