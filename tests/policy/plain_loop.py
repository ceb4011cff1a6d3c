"""The least loop around the two roles, as an engine with one worker in one process makes it."""

import torch

from dressage.policy import EvalConfig, PolicyConfig, PolicyRole, TrainConfig
from dressage.policy.rsl_rl_policy.rsl_rl_policy import RSLRLPolicy
from dressage.policy.rsl_rl_policy.vec_env import VecEnvRollouts


class PlainLoop:
    def __init__(self, env, kwargs, *, host=False, **config):
        self.env = VecEnvRollouts(env, "test")
        self.config = PolicyConfig(policy_kwargs=kwargs, **config)
        self.learner = RSLRLPolicy(self.config, PolicyRole.TRAIN)
        self.learner.init_train(TrainConfig(), self.env.meta())
        self.actor = RSLRLPolicy(self.config, PolicyRole.EVAL)
        self.actor.init_eval(EvalConfig(), self.env.meta())
        self.env_ret = self.env.observe()
        self.host = host

    def collect(self):
        self.actor.load_weights(self.learner.weights())
        transitions = []
        for _ in range(self.learner.num_steps):
            response = self.actor.rollout_step(self.env_ret)
            self.env_ret = self.env.step(response.action)
            transitions.append(self.actor.postprocess(self.env_ret, response))
        return self.actor.close_fragment(transitions, self.env_ret, host=self.host)

    def iterate(self, updates=1):
        metrics = {}
        for _ in range(updates):
            self.learner.update_dataset([self.collect()])
            metrics = self.learner.train()
        return metrics


def largest_difference(states, others):
    """The largest absolute difference between two sets of states, by module and name."""
    assert states.keys() == others.keys()
    pairs = [(states[m][n], others[m][n]) for m in states for n in states[m]]
    assert all(len(states[m]) == len(others[m]) for m in states)
    return max(
        float((torch.as_tensor(a).double() - torch.as_tensor(b).double()).abs().max()) for a, b in pairs
    )
