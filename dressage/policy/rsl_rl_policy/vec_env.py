"""Owns the face that an rsl_rl vector environment shows to an engine."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from rsl_rl.env import VecEnv
from torch import Tensor

from dressage.errors import EnvironmentContractError
from dressage.policy.base_policy import EnvRet
from dressage.policy.rsl_rl_policy.env_meta import ExampleObservation, RSLRLVecEnvMeta

FINAL_OBSERVATION = "final_observation"
"""Key of `extras` under which an environment gives the observations that its episodes ended with."""

TIME_OUTS = "time_outs"
"""Key of `extras` that rsl_rl defines: which episodes a time limit ended."""


class VecEnvRollouts:
    """A `rsl_rl.env.VecEnv` as an engine steps it.

    rsl_rl's `dones` are cut in two: `last_truncated` is `extras["time_outs"]`, `last_terminated` the rest.

    Args:
        env: The environment; those of Isaac Lab and mjlab come through their own rsl_rl wrappers.
        env_id: Its name, for errors and logs.
    """

    def __init__(self, env: VecEnv, env_id: str = "VecEnv") -> None:
        self.env = env
        self._env_id = env_id

    @property
    def num_envs(self) -> int:
        """Number of copies."""
        return int(self.env.num_envs)

    def meta(self) -> RSLRLVecEnvMeta:
        """Return what rsl_rl must know of it, in a form that can be sent to another process."""
        return RSLRLVecEnvMeta(
            env_id=self._env_id,
            num_envs=self.num_envs,
            num_actions=int(self.env.num_actions),
            get_observations=ExampleObservation(self.env.get_observations().clone()),
            step_dt=getattr(getattr(self.env, "unwrapped", self.env), "step_dt", None),
        )

    def observe(self) -> EnvRet:
        """Return the present observations."""
        return EnvRet(self._env_id, self.env.get_observations())

    def step(self, action: Tensor) -> EnvRet:
        """Take one action, `[N, num_actions]`, in every copy.

        Raises:
            EnvironmentContractError: If a time-out is reported for an episode that is not done.
        """
        observation, rewards, dones, extras = self.env.step(action.to(self.env.device))
        done = dones.bool()
        truncated, terminated = _cut(extras, done, self._env_id)
        return EnvRet(
            env_id=self._env_id,
            observation=observation,
            last_reward=rewards,
            last_terminated=terminated,
            last_truncated=truncated,
            info=extras.get("log", {}),
            final_observation=extras.get(FINAL_OBSERVATION),
        )

    def state(self) -> Mapping[str, np.ndarray] | None:
        """Return all that its future depends on, where the environment can tell (`state()`), or None."""
        reads: Any = getattr(self.env, "state", None)
        return reads() if callable(reads) else None

    def load_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `state` returned."""
        loads: Any = getattr(self.env, "load_state", None)
        if not callable(loads):
            raise EnvironmentContractError(
                f"{self._env_id!r} has no load_state, so its state cannot be restored."
            )
        loads(state)

    def close(self) -> None:
        """Close the environment, where it can be closed."""
        closes: Any = getattr(self.env, "close", None)
        if callable(closes):
            closes()


def _cut(extras: Mapping[str, Any], done: Tensor, env_id: str) -> tuple[Tensor, Tensor]:
    """Return which episodes a time limit ended, and which the task."""
    if TIME_OUTS not in extras:
        return torch.zeros_like(done), done
    truncated: Tensor = extras[TIME_OUTS].to(done.device).bool()
    if not bool(truncated.any()):
        return truncated, done
    stray = truncated & ~done
    if bool(stray.any()):
        copy = int(stray.nonzero()[0])
        raise EnvironmentContractError(
            f"{env_id!r} reports a time-out of copy {copy}, whose episode is not done. A time limit ends the "
            "episode: dones must be set too."
        )
    return truncated, done & ~truncated
