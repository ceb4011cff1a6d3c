"""What `train` and `make_trainer` were given instead of environment, configuration and key, in words."""

from typing import Any

import jax
import jax.numpy as jnp

from dressage.envs.adapters.gymnasium import HostTask
from dressage.envs.functional import BaseEnv
from dressage.envs.multi_agent import MultiAgentEnv
from dressage.errors import ConfigError, EnvironmentContractError
from dressage.ppo.config import Config


def check_arguments(env: Any, config: Any, function: str, *, host: bool) -> None:  # noqa: ANN401 (anything)
    """Refuse what is no environment or no configuration, with what to give instead.

    An object of no kind known here passes; the check of the environment's contract speaks of it.

    Args:
        env: What was given as the environment.
        config: What was given as the configuration.
        function: What they were given to, for the text.
        host: Whether that function takes host tasks, too.

    Raises:
        ConfigError: If the two are swapped, or the configuration is none.
        EnvironmentContractError: If the environment is the name of a task, a class, one of many agents, or
            one of the host where none is taken.
    """
    if isinstance(env, Config):
        raise ConfigError(f"`{function}` takes the environment first and the configuration second.")
    if not isinstance(config, Config):
        raise ConfigError(f"`{function}` takes a Config, got {_described(config)}.{_config_remedy(config)}")
    remedy = _environment_remedy(env, host=host)
    if remedy:
        raise EnvironmentContractError(
            f"An environment must derive from BaseEnv, got {_described(env)}: {remedy}."
        )


def check_key(key: Any) -> None:  # noqa: ANN401
    """Refuse what is not one random key: an integer, or several keys.

    Raises:
        ConfigError: If it is none; the text says how to make one.
    """
    if not hasattr(key, "dtype") or not hasattr(key, "shape"):
        raise ConfigError(f"`train` takes a random key, got {key!r}: make one by jax.random.key(0).")
    typed = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    if not typed and not (key.dtype == jnp.uint32 and key.shape):
        raise ConfigError(
            f"`train` takes a random key, got {key.dtype}{list(key.shape)}: make one by jax.random.key(0)."
        )
    if len(key.shape) > (0 if typed else 1):
        raise ConfigError(
            f"`train` takes one random key, got keys of shape {tuple(key.shape)}; vmap over them."
        )


def _environment_remedy(env: Any, *, host: bool) -> str:  # noqa: ANN401
    if isinstance(env, str):
        return f"dressage.envs.make({env!r}) makes a task by its name"
    if isinstance(env, MultiAgentEnv):
        return "agents that are several are trained by dressage.rl.ippo.IPPO"
    if isinstance(env, HostTask) and not host:
        return "an environment that steps in Python is trained by `make_trainer`"
    if isinstance(env, type) and issubclass(env, BaseEnv):
        return f"make one, {env.__name__}()"
    return ""


def _config_remedy(config: Any) -> str:  # noqa: ANN401
    if isinstance(config, dict):
        return " Config.from_mapping makes one from a dict."
    return " Config() has the defaults." if config is Config or config is None else ""


def _described(given: Any) -> str:  # noqa: ANN401
    return f"the class {given.__name__}" if isinstance(given, type) else type(given).__name__
