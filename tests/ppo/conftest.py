"""Training runs that several tests look at; each is compiled once a session."""

import contextlib
import io
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from dressage.ppo import Config, compiler_options, train
from tests.envs.toys import Diary
from tests.ppo.small_tasks import SMALL

CALLS: list[Any] = []

# Each row of the sweep: what differs from SMALL, and the seed.
SWEEP = {
    "base": ({}, 0),
    "seed 1": ({}, 1),
    "seed 2": ({}, 2),
    "again": ({}, 0),
    "LR": ({"LR": 1e-4}, 0),
    "GAMMA": ({"GAMMA": 0.5}, 0),
    "GAE_LAMBDA": ({"GAE_LAMBDA": 0.1}, 0),
    "CLIP_EPS": ({"CLIP_EPS": 1e-3}, 0),
    "ENT_COEF": ({"ENT_COEF": 1.0}, 0),
    "VF_COEF": ({"VF_COEF": 0.0}, 0),
    "MAX_GRAD_NORM": ({"MAX_GRAD_NORM": 1e-6}, 0),
}


class Watched(Config):
    """Adds the evaluation's records to the metrics, and keeps what the host was given."""

    def EVAL_METRICS_JAX_CB(self, total_steps, diagnostics, eval_transitions=None):
        metrics = Config.EVAL_METRICS_JAX_CB(self, total_steps, diagnostics, eval_transitions)
        return metrics | {"steps": eval_transitions, "diagnostics": diagnostics}

    def EVAL_METRICS_HOST_CB(self, metrics):
        CALLS.append((self, metrics))


@dataclass
class Run:
    """A finished training run: its result and what arrived on the host."""

    result: Any
    output: str = ""
    calls: list[Any] = field(default_factory=list)


def run(function, *arguments):
    """Call a compiled training function and wait for its callbacks."""
    CALLS.clear()
    with contextlib.redirect_stdout(io.StringIO()) as output:
        result = jax.block_until_ready(function(*arguments))
        jax.effects_barrier()
    return Run(result, output.getvalue(), list(CALLS))


@pytest.fixture(scope="session")
def diary():
    return Diary()


@pytest.fixture(scope="session")
def sweep(diary):
    """All rows of SWEEP in one vmapped program."""
    configs = [Watched(**(SMALL | changes)).validate() for changes, _ in SWEEP.values()]
    stacked = jax.tree.map(lambda *leaves: jnp.array(leaves, jnp.float32), *configs)
    keys = jax.vmap(jax.random.key)(jnp.array([seed for _, seed in SWEEP.values()]))
    return run(jax.jit(jax.vmap(lambda config, key: train(diary, config, key))), stacked, keys)


@pytest.fixture(scope="session")
def compiled(diary):
    """`train` compiled once for SMALL on the diary, as chunks are."""
    return jax.jit(train, static_argnums=0, compiler_options=compiler_options()), diary, Config(**SMALL)


@pytest.fixture(scope="session")
def single(compiled):
    """The first row of SWEEP by itself, without callbacks."""
    function, env, config = compiled
    return run(function, env, config, jax.random.key(0))


# All that SMALL leaves off, without evaluation: 3 updates of 20 samples.
TALKATIVE = {
    "NUM_ENVS": 4,
    "NUM_STEPS": 5,
    "TOTAL_TIMESTEPS": 41.0,
    "UPDATE_EPOCHS": 3,
    "NUM_MINIBATCHES": 2,
    "NUM_HIDDEN_LAYERS": 1,
    "NUM_HIDDEN_UNITS": 8,
    "STATE_INDEPENDENT_STD": False,
    "SQUASH": False,
    "ANNEAL_LR": True,
    "NORMALIZE_ENV": True,
    "FIXED_INIT": False,
    "OFFSET_STEP": True,
    "LR": 1e-2,
}


def as_shipped():
    """`train` with the emitters that `make test` does without, so that two programs round alike."""
    return jax.jit(train, static_argnums=0, compiler_options={"xla_cpu_use_fusion_emitters": True})


@pytest.fixture(scope="session")
def talkative(diary):
    """Prints evaluations and updates, evaluates nothing."""
    config = Config(**TALKATIVE, NUM_EVAL_ENVS=0, EVAL_FREQ=100, VERBOSE=True, DEBUG=True)
    return run(as_shipped(), diary, config, jax.random.key(3))


@pytest.fixture(scope="session")
def silent(diary):
    """The same training, with evaluations and without a word."""
    config = Config(**TALKATIVE, NUM_EVAL_ENVS=2, EVAL_FREQ=1, VERBOSE=False)
    return run(as_shipped(), diary, config, jax.random.key(3))
