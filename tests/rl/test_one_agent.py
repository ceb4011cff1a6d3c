"""IPPO with one agent is PPO: given the same options, keys and steps, both learn the same."""

import jax
import numpy as np
import pytest

from dressage import envs
from dressage.ppo import Config, train
from dressage.rl.ippo import IPPO

UPDATES, COPIES, STEPS = 5, 4, 8


@pytest.mark.parametrize(
    "extra",
    [
        {},
        pytest.param({"normalize": True, "anneal": True}, marks=pytest.mark.slow),
    ],
)
def test_ippo_of_one_agent_on_cartpole_is_ppo(extra):
    normalize, anneal = extra.get("normalize", False), extra.get("anneal", False)
    env, total = envs.make("cartpole", max_steps=9), UPDATES * COPIES * STEPS
    config = Config(
        NUM_ENVS=COPIES,
        NUM_STEPS=STEPS,
        TOTAL_TIMESTEPS=total,
        UPDATE_EPOCHS=2,
        NUM_MINIBATCHES=4,
        NUM_HIDDEN_LAYERS=1,
        NUM_HIDDEN_UNITS=4,
        KERNEL_INIT_TYPE="orthogonal",
        LR=3e-3,
        GAMMA=0.97,
        GAE_LAMBDA=0.9,
        CLIP_EPS=0.1,
        ENT_COEF=0.02,
        VF_COEF=0.7,
        MAX_GRAD_NORM=0.4,
        ANNEAL_LR=anneal,
        NORMALIZE_ENV=normalize,
        FIXED_INIT=False,
        NUM_EVAL_ENVS=0,
        VERBOSE=False,
    )
    theirs = jax.jit(train, static_argnums=0)(env, config, jax.random.key(3))
    learner = IPPO(
        {
            "num_envs": COPIES,
            "rollout_length": STEPS,
            "learning_epochs": 2,
            "mini_batches": 4,
            "network": {"hidden_sizes": (4,)},
            "learning_rate": 3e-3,
            "gamma": 0.97,
            "gae_lambda": 0.9,
            "clip_eps": 0.1,
            "entropy_coef": 0.02,
            "value_coef": 0.7,
            "max_grad_norm": 0.4,
            "anneal_learning_rate": anneal,
            "normalize_observations": normalize,
            "normalize_rewards": normalize,
        },
        seed=3,
    )
    result = learner.train(env, total)
    ours = result.agent_states["agent"]
    flat = jax.tree.leaves(ours.params), jax.tree.leaves(theirs.runner_state.train_state.params)
    assert len(flat[0]) == len(flat[1]) == 8
    for mine, other in zip(*flat, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-5)
    start = learner.__class__(learner.config, seed=3).train(env, 0).agent_states["agent"].params
    assert (
        max(np.abs(one - other).max() for one, other in zip(flat[0], jax.tree.leaves(start), strict=True))
        > 1e-2
    )
