"""A policy and an environment in plain NumPy that draw, learn and fail on command."""

import json
import os
import signal
import time
from dataclasses import dataclass, replace

import numpy as np

from dressage.policy.base_policy import (
    BasePolicy,
    EnvMeta,
    EnvRet,
    Fragment,
    PolicyConfig,
    PolicyResponse,
    Weights,
)
from dressage.runtime import RunSpec

STREAM = np.random.Generator(np.random.PCG64(0))
"""The one random stream of a process, as torch has one."""

STEPS = 6


class LinearPolicy(BasePolicy):
    """Acts by a linear mean with noise; learns a little from every step, drawing while it does."""

    def init_train(self, train_config, env_meta=None):
        self.num_envs = env_meta.num_envs
        self.parameters = {"mean": STREAM.standard_normal(2), "seen": np.zeros(2)}
        self.given = None

    def init_eval(self, eval_config=None, env_meta=None):
        self.parameters = {"mean": np.zeros(2), "seen": np.zeros(2)}
        self.memory = np.zeros(env_meta.num_envs)

    @property
    def num_steps(self):
        return self.config.policy_kwargs.get("steps", STEPS)

    def rollout_step(self, env_ret):
        observation = np.array(env_ret.observation)
        noise = STREAM.standard_normal(len(observation))
        action = observation @ self.parameters["mean"] + 0.1 * self.memory + noise
        return PolicyResponse(env_ret.env_id, observation, action, self.version)

    def postprocess(self, env_ret, policy_resp):
        ended = env_ret.last_terminated | env_ret.last_truncated
        self.memory = np.where(ended, 0.0, 0.5 * self.memory + policy_resp.action)
        return replace(
            policy_resp,
            reward=np.array(env_ret.last_reward),
            terminated=env_ret.last_terminated,
            truncated=env_ret.last_truncated,
        )

    def close_fragment(self, transitions, env_ret, *, host=True):
        names = ("observation", "action", "reward", "terminated", "truncated")
        steps = {name: np.stack([getattr(one, name) for one in transitions]) for name in names}
        last = {"observation": np.array(env_ret.observation)}
        return Fragment(env_ret.env_id, transitions[0].version, steps, last)

    def update_dataset(self, data):
        copies = sum(fragment.num_envs for fragment in data)
        assert copies == self.num_envs
        assert all(np.isfinite(rows).all() for fragment in data for rows in fragment.steps.values())
        self.given = [dict(fragment.steps) for fragment in data]
        self.lags = [self.version - fragment.version for fragment in data]

    def train(self):
        steps = {name: np.concatenate([one[name] for one in self.given], axis=1) for name in self.given[0]}
        weights = STREAM.random(steps["reward"].shape)
        push = (weights * steps["reward"] * steps["action"])[..., None] * steps["observation"]
        self.parameters = {
            "mean": self.parameters["mean"] + 0.01 * push.mean((0, 1)),
            "seen": self.parameters["seen"] + steps["observation"].mean((0, 1)),
        }
        self.version += 1
        return {"training/push": float(np.abs(push).mean())}

    def get_trainable_parameters(self):
        return {"linear": {name: array.copy() for name, array in self.parameters.items()}}

    def load_state_dict(self, state_dict):
        self.parameters = {name: np.array(array) for name, array in state_dict["linear"].items()}

    def weights(self, *, host=True):
        return Weights(self.version, {name: array.copy() for name, array in self.parameters.items()})

    def load_weights(self, weights):
        self.load_state_dict({"linear": weights.arrays})
        self.version = weights.version

    def rollout_state(self):
        return {"memory": self.memory.copy()}

    def load_rollout_state(self, state):
        self.memory = np.array(state["memory"]) if state else np.zeros_like(self.memory)

    def random_state(self):
        return np.frombuffer(json.dumps(STREAM.bit_generator.state).encode(), np.uint8)

    def load_random_state(self, state):
        STREAM.bit_generator.state = json.loads(np.asarray(state, np.uint8).tobytes())

    def seed(self, seed):
        STREAM.bit_generator.state = np.random.PCG64(seed).state

    def save_checkpoint(self, path, note):
        rows = {name: array.tolist() for name, array in self.parameters.items()}
        path.write_text(json.dumps({"version": self.version, "rows": rows}))

    def load_checkpoint(self, path):
        stored = json.loads(path.read_text())
        self.version = stored["version"]
        self.parameters = {name: np.array(row) for name, row in stored["rows"].items()}
        return {}


class StubbornPolicy(LinearPolicy):
    """Acts by whatever weights it was given first."""

    def load_weights(self, weights):
        if self.version == 0:
            super().load_weights(weights)


class Walk:
    """Copies of a walk that the actions push; episodes last 2 to 9 steps, some end by a time limit."""

    saves_state = True

    def __init__(self, seed, copies=3):
        self.seed, self.copies = seed, copies
        self.generator = np.random.Generator(np.random.PCG64(seed))
        self.count = 0
        self.jitter = STREAM.random()  # environments may draw from the process's stream too
        self.rows = np.zeros((copies, 2))
        self.left = np.zeros(copies, int)
        self._begin(np.ones(copies, bool))

    def _begin(self, which):
        self.rows[which] = self.generator.standard_normal((which.sum(), 2)) + self.jitter
        self.left[which] = self.generator.integers(2, 10, which.sum())

    @property
    def num_envs(self):
        return self.copies

    def meta(self):
        return EnvMeta(env_id="walk", num_envs=self.copies)

    def observe(self):
        return EnvRet("walk", self.rows.copy())

    def step(self, action):
        self.count += 1
        self.rows[:, 0] += 0.1 * action
        self.rows[:, 1] = self.generator.standard_normal(self.copies) + STREAM.random()
        reward = -np.abs(self.rows[:, 0])
        self.left -= 1
        over = self.left == 0
        limit = over & (np.arange(self.copies) % 2 == 0)
        self._begin(over)
        return EnvRet("walk", self.rows.copy(), reward, over & ~limit, limit)

    def state(self):
        if not self.saves_state:
            return None
        generator = json.dumps(self.generator.bit_generator.state).encode()
        return {
            "rows": self.rows.copy(),
            "left": self.left.copy(),
            "generator": np.frombuffer(generator, np.uint8),
            "other": np.array([self.count, self.jitter]),
        }

    def load_state(self, state):
        self.rows, self.left = np.array(state["rows"]), np.array(state["left"])
        self.generator.bit_generator.state = json.loads(state["generator"].tobytes())
        self.count, self.jitter = int(state["other"][0]), float(state["other"][1])

    def close(self):
        pass


class ForgetfulWalk(Walk):
    saves_state = False


@dataclass(frozen=True)
class FailingWalk:
    """Makes walks that fail once at a step, in the first life of one worker; `where` marks that it happened.

    Attributes:
        where: A file that does not exist yet.
        how: `kill`, `exit`, `hang`, `raise`, `reward`, `observation` or `last` (a final row that is NaN).
        step: The step at which it fails, from 1.
        always: Whether it fails in every life.
    """

    where: str
    how: str
    step: int = 9
    always: bool = False

    def __call__(self, seed):
        return _Failing(seed, self)


class _Failing(Walk):
    def __init__(self, seed, plan):
        super().__init__(seed)
        self.plan = plan

    def step(self, action):
        ret = super().step(action)
        if self.count != self.plan.step:
            return ret
        try:
            # Of several processes one alone makes the file.
            with open(self.plan.where, "a" if self.plan.always else "x") as file:
                file.write(f"{self.seed}\n")
        except FileExistsError:
            return ret
        return self.fail(ret)

    def fail(self, ret):
        match self.plan.how:
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(3)
            case "hang":
                time.sleep(600)
            case "raise":
                raise ValueError("the track ends here")
            case "reward":
                ret.last_reward[1] = np.nan
            case "observation":
                ret.observation[2, 0] = np.inf
        return ret


def config(rollout_mode="sync", **kwargs):
    return PolicyConfig(type="LinearPolicy", policy_kwargs=kwargs, rollout_mode=rollout_mode)


def spec(make_env=Walk, rollout_mode="sync", policy=LinearPolicy, **kwargs):
    return RunSpec(policy, config(rollout_mode, **kwargs), make_env)


class Rows(list):
    """A sink that keeps the rows."""

    def write(self, row):
        self.append(dict(row))

    def of(self, kind):
        return [row for row in self if row["kind"] == kind]
