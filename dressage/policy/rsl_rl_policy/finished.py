"""Owns a finished policy: two files that hold all it takes to act, and episodes that it plays.

`model.pt` is a checkpoint that rsl_rl's runner loads too; `policy.json` holds rsl_rl's configuration and the
sizes of observations and actions.
"""

import copy
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict

from dressage.errors import CheckpointError
from dressage.learning.policy_graph import Deployment
from dressage.policy.base_policy import EvalConfig, PolicyConfig, PolicyRole, RolloutEnv
from dressage.policy.rsl_rl_policy import checkpoint_files
from dressage.policy.rsl_rl_policy.env_meta import ExampleObservation, RSLRLVecEnvMeta
from dressage.policy.rsl_rl_policy.module_states import as_array, as_tensor
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy
from dressage.signals import Signal, Signals
from dressage.whole_files import whole_file

MODEL, DESCRIPTION = "model.pt", "policy.json"
FORMAT = 1


@dataclass(frozen=True)
class FinishedPolicy:
    """A policy as training leaves it.

    Attributes:
        config: rsl_rl's training configuration.
        groups: Shape of one copy's observation, by group.
        num_actions: Length of one copy's action.
        step_dt: Control period in seconds; None where the environment does not tell.
        checkpoint: Content of `model.pt`.
    """

    config: Mapping[str, Any]
    groups: Mapping[str, tuple[int, ...]]
    num_actions: int
    step_dt: float | None
    checkpoint: Mapping[str, Any]

    @classmethod
    def of(cls, learner: RSLRLPolicy, meta: RSLRLVecEnvMeta) -> "FinishedPolicy":
        """Take a learner's policy as it is now.

        Args:
            learner: In the TRAIN role.
            meta: The environment that it learns on.
        """
        known = meta.checked()
        groups = {str(name): tuple(tensor.shape[1:]) for name, tensor in known.example.items()}
        content = copy.deepcopy(checkpoint_files.collect(learner.algo, learner.version, {}))
        return cls(learner.config.policy_kwargs, groups, known.num_actions, meta.step_dt, content)

    def save(self, folder: Path | str) -> None:
        """Write the policy's files into a folder; killed at any moment, it holds those before or these.

        Raises:
            CheckpointError: If the configuration holds a class or a function, which a file cannot.
        """
        content = {
            "format": FORMAT,
            "config": dict(self.config),
            "groups": {name: list(shape) for name, shape in self.groups.items()},
            "num_actions": self.num_actions,
            "step_dt": self.step_dt,
        }
        try:
            text = json.dumps(content, indent=2) + "\n"
        except TypeError as error:
            raise CheckpointError(
                f"The configuration cannot be written to a file: {error}. Name classes and functions by "
                "'module:name' instead of passing them."
            ) from error
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint_files.write(folder / MODEL, self.checkpoint)
        with whole_file(folder / DESCRIPTION) as draft:
            draft.write_text(text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path | str) -> "FinishedPolicy":
        """Read what `save` wrote.

        Raises:
            CheckpointError: If a file is missing or damaged, or holds more than tensors and plain values.
        """
        folder = Path(folder)
        path = folder / DESCRIPTION
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            groups = {name: tuple(shape) for name, shape in content["groups"].items()}
            parts = (content["config"], groups, int(content["num_actions"]), content["step_dt"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} is no description of a policy: {error!r}.") from error
        return cls(*parts, checkpoint_files.read(folder / MODEL, "cpu"))

    def deployment(self) -> Deployment:
        """Return what the policy's files are made of; see `dressage.export.export_policy`.

        Raises:
            ConfigError: If the actor cannot be exported whole.
        """
        return self._alone().deployment()

    def signals(self) -> Signals:
        """Name the numbers that the actor takes and gives by observation group and place."""
        groups = self._alone().algo.get_policy().obs_groups
        seen = (signal for group in groups for signal in _numbered(group, math.prod(self.groups[group])))
        return Signals(tuple(seen), tuple(_numbered("action", self.num_actions)), self.step_dt)

    def player(self, num_envs: int, *, stochastic: bool = False, device: str = "cpu") -> RSLRLPolicy:
        """Return a policy that acts in so many copies.

        Args:
            num_envs: Copies, at least 1.
            stochastic: Sample the actions instead of taking the mean.
            device: Where it computes.
        """
        # What only learning needs would ask for an environment.
        kwargs = copy.deepcopy(dict(self.config))
        kwargs["algorithm"] = {
            name: None if name in ("rnd_cfg", "symmetry_cfg") else value
            for name, value in kwargs["algorithm"].items()
        }
        example = {name: torch.zeros(1, *shape) for name, shape in self.groups.items()}
        meta = RSLRLVecEnvMeta(
            num_envs=num_envs,
            num_actions=self.num_actions,
            get_observations=ExampleObservation(TensorDict(example, batch_size=[1])),
            step_dt=self.step_dt,
        )
        policy = RSLRLPolicy(PolicyConfig(policy_kwargs=kwargs, device=device), PolicyRole.EVAL)
        policy.init_eval(EvalConfig(deterministic=not stochastic), meta)
        policy.load_content(self.checkpoint)
        return policy

    def _alone(self) -> RSLRLPolicy:
        """Return a policy that acts in one copy; torch's random stream stays where it was."""
        with torch.random.fork_rng(devices=[]):
            return self.player(1)


@dataclass(frozen=True)
class PlayedEpisodes:
    """The first episode of every copy.

    Attributes:
        returns: Undiscounted sums of the rewards, `[E]` float64.
        lengths: Steps, `[E]`.
        finished: Whether the episode ended within the steps allowed, `[E]` bool.
    """

    returns: np.ndarray
    lengths: np.ndarray
    finished: np.ndarray


def _numbered(name: str, count: int) -> Iterator[Signal]:
    return (Signal(f"{name}[{place}]") for place in range(count))


def play_episodes(policy: RSLRLPolicy, env: RolloutEnv, most_steps: int) -> PlayedEpisodes:
    """Play the first episode of every copy.

    Args:
        policy: In the EVAL role, built for as many copies.
        env: Freshly made.
        most_steps: Where to stop waiting for episodes to end, at least 1.
    """
    returns = np.zeros(env.num_envs)
    lengths = np.zeros(env.num_envs, dtype=np.int64)
    running = np.ones(env.num_envs, dtype=bool)
    for reward, ended in _steps(policy, env, most_steps):
        returns[running] += reward[running]
        lengths[running] += 1
        running &= ~ended
        if not running.any():
            break
    return PlayedEpisodes(returns, lengths, ~running)


def _steps(policy: RSLRLPolicy, env: RolloutEnv, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield rewards and ends of one step after another."""
    env_ret = env.observe()
    for _ in range(most):
        response = policy.rollout_step(env_ret)
        env_ret = env.step(response.action)
        complete = policy.postprocess(env_ret, replace(response, value=None))
        ended = as_tensor(complete.terminated) | as_tensor(complete.truncated)
        yield as_array(as_tensor(complete.reward)), as_array(ended)
