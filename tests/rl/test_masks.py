"""Action masks: obeyed when acting, the same when learning, and never without a legal choice."""

from dataclasses import dataclass

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces

from dressage import envs
from dressage.envs import MultiAgentEnv
from dressage.envs.spaces import Discrete
from dressage.errors import EnvironmentContractError, NonFiniteError, UnsupportedSpaceError
from dressage.rl.ippo import IPPO
from tests.rl.rl_toys import SMALL, Script

OPTIONS = {**SMALL, "learning_epochs": 1, "mini_batches": 1, "learning_rate": 0.05}
SPACE = spaces.Dict(
    {"observation": spaces.Box(0.0, 9.0, (2,), np.float32), "action_mask": spaces.Box(0, 1, (3,), np.int8)}
)


@dataclass(frozen=True)
class Doors(MultiAgentEnv):
    """Of three doors the one with the number of the step is shut; `n` leaves after two steps.

    Whoever goes through a shut door is paid -100, else 1. From step `shut_at` of the third episode on, all
    doors are shut to `m`; `n` sees only shut doors as soon as it has left.
    """

    max_steps: int = 4
    shut_at: int = 99
    possible_agents: tuple[str, ...] = ("m", "n")

    def reset(self, rng):
        state = jnp.zeros((), jnp.int32)
        return state, self._observe(state), {"m": {}, "n": {}}

    def step(self, state, actions):
        rewards = {agent: jnp.where(actions[agent] == state % 3, -100.0, 1.0) for agent in ("m", "n")}
        state = state + 1
        no = jnp.asarray(False)
        terminated = {"m": no, "n": state >= 2}
        return state, self._observe(state), rewards, terminated, {"m": no, "n": no}, {"m": {}, "n": {}}

    def observation_space(self, state, agent):
        return SPACE

    def action_space(self, state, agent):
        return Discrete(3)

    def _observe(self, state):
        seen = jnp.stack([state, state % 3]).astype(jnp.float32)
        open_ = (jnp.arange(3) != state % 3).astype(jnp.int8)
        return {
            "m": {
                "observation": seen,
                "action_mask": jnp.where(state >= self.shut_at, 0, open_).astype(jnp.int8),
            },
            "n": {"observation": seen, "action_mask": jnp.where(state >= 2, 0, open_).astype(jnp.int8)},
        }


def make_doors():
    return envs.to_parallel_env(Doors())


@pytest.mark.parametrize("env", [Doors(), make_doors], ids=["compiled", "host"])
def test_masked_choices_are_never_made_and_the_update_knows_the_masks(env):
    result = IPPO(OPTIONS).train(env, 40)
    assert {episode["agent_returns"]["m"] for episode in result.history} == {4.0}
    assert {episode["agent_returns"]["n"] for episode in result.history} == {2.0}
    for agent in ("m", "n"):
        for row in result.metrics[agent]:
            # One minibatch: the policy that learns is still the one that acted, if both are masked alike.
            assert abs(row["approx_kl"]) < 1e-6 and row["clip_fraction"] == 0
            assert np.isfinite(row["loss"])
            assert row["entropy"] <= np.log(2) + 1e-5
    probabilities = result.policies["m"].component_action_probs(
        {"observation": np.array([1.0, 1.0], np.float32), "action_mask": np.array([1, 0, 1], np.int8)}
    )[0]
    assert probabilities[1] == 0 and probabilities.sum() == pytest.approx(1)


def test_no_legal_choice_for_an_agent_that_acts_is_an_error_with_its_name_and_step():
    with pytest.raises(
        NonFiniteError, match="action mask of agent 'm' leaves no legal choice: environment copy 0, step 3 of"
    ):
        IPPO(OPTIONS).train(Doors(shut_at=3), 40)
    with pytest.raises(
        EnvironmentContractError,
        match="step 2 of that copy .* the action mask of agent 'm' leaves it no legal",
    ):
        IPPO(OPTIONS).train(lambda: envs.to_parallel_env(Doors(shut_at=3)), 40)


class Told(Script):
    """Has the mask in its infos: only action 1 is legal in odd steps, only 0 in even ones."""

    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        return observations, {agent: self.told() for agent in infos}

    def step(self, actions):
        assert all(action == (self.count % 2) for action in actions.values()), actions
        *others, infos = super().step(actions)
        return *others, {agent: self.told() for agent in infos}

    def told(self):
        return {"action_mask": np.arange(2) == self.count % 2}


def test_a_mask_may_stand_in_the_infos_of_an_environment_on_the_host():
    env = Told([{"agents": "ab"}] * 5 + [{"agents": "", "trunc": "ab"}])
    result = IPPO({**OPTIONS, "num_envs": 1}).train(env, 12)
    assert all(abs(row["approx_kl"]) < 1e-6 and row["entropy"] < 1e-6 for row in result.metrics["a"])
    policy, seen = result.policies["a"], np.zeros(2, np.float32)
    for mask, legal in (([True, False], 0), ([False, True], 1)):
        assert policy.act(seen, action_mask=np.array(mask)) == legal
        assert policy.act(seen, action_mask=np.array(mask), rng=jax.random.key(0)) == legal


def test_a_mask_in_the_infos_of_a_functional_environment_is_refused():
    class Whispering(Doors):
        def step(self, state, actions):
            *others, infos = super().step(state, actions)
            return *others, {**infos, "n": {"action_mask": jnp.ones(3)}}

    with pytest.raises(EnvironmentContractError, match="has the 'action_mask' of agent 'n' in its info"):
        IPPO(OPTIONS).train(Whispering(), 8)


def test_a_mask_needs_one_entry_a_choice():
    wrong = spaces.Dict({"observation": spaces.Box(0, 1, (2,)), "action_mask": spaces.MultiBinary(4)})
    env = Script([{"agents": "ab"}], observation_spaces={"a": wrong, "b": wrong})
    with pytest.raises(UnsupportedSpaceError, match="has 4 entries; its actions have 2 discrete choices"):
        IPPO({**OPTIONS, "num_envs": 1}).train(env, 8)
    boxes = dict.fromkeys("ab", gymnasium.spaces.Box(-1, 1, (2,)))
    env = Script([{"agents": "ab"}], observation_spaces={"a": wrong, "b": wrong}, action_spaces=boxes)
    with pytest.raises(UnsupportedSpaceError, match="'a' has an action mask, but its action space Box"):
        IPPO({**OPTIONS, "num_envs": 1}).train(env, 8)
