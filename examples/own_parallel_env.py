"""Two unlike agents under PettingZoo's interface, trained by IPPO: an environment of your own on the host."""

# Brief on purpose: what each part returns stands on the page that shows it.
# ruff: noqa: ANN001, ANN201, ANN202, D102

# --8<-- [start:environment]
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary
from pettingzoo import ParallelEnv


class Handover(ParallelEnv):
    """A picker drops parcels at a place on a belt; a runner, who sees only the place, must stand there."""

    metadata = {"name": "handover"}
    possible_agents = ["picker", "runner"]

    action_spaces = {"picker": Discrete(4), "runner": Discrete(3)}
    observation_spaces = {
        "picker": Dict(runner=Discrete(3), action_mask=MultiBinary(4)),  # what it did last, what is legal now
        "runner": Box(0.0, 1.0, (3,), np.float32),
    }

    def observation_space(self, agent):
        return self.observation_spaces[agent]

    def action_space(self, agent):
        return self.action_spaces[agent]

    def reset(self, seed=None, options=None):
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents, self._steps = list(self.possible_agents), 0
        self._place, self._runner = int(self._rng.integers(3)), 0
        return self._observations(), {agent: {} for agent in self.agents}

    def step(self, actions):
        self._runner = actions["runner"]
        caught = float(self._runner == self._place)
        self._place, self._steps = int(actions.get("picker", 0)) % 3, self._steps + 1
        # The picker's shift is shorter: it leaves by a flag, and the runner goes on alone.
        done = {"picker": self._steps >= 6, "runner": self._steps >= 8}
        here = list(self.agents)
        self.agents = [agent for agent in here if not done[agent]]
        observations = {agent: seen for agent, seen in self._observations().items() if agent in here}
        return (
            observations,
            dict.fromkeys(here, caught),
            {agent: done[agent] for agent in here},
            dict.fromkeys(here, False),
            {agent: {"cost": 0.0} for agent in here},
        )

    def _observations(self):
        place = np.eye(3, dtype=np.float32)[self._place]
        mask = np.array([1, 1, 1, 0], np.int8)  # the belt has three places; choice 3 is broken
        return {"picker": {"runner": self._runner, "action_mask": mask}, "runner": place}


# --8<-- [end:environment]


def main() -> None:
    """Train, look at the result and act with it."""
    # --8<-- [start:train]
    from dressage.rl.ippo import IPPO

    learner = IPPO({"num_envs": 4, "rollout_length": 32, "learning_rate": 3e-3}, seed=0)
    result = learner.train(Handover, total_timesteps=6_400)

    print(result.progress)
    print(result.history[-1])
    print(result.metrics["runner"][-1]["episode_return"])
    # --8<-- [end:train]

    # --8<-- [start:act]
    env = Handover()
    observations, _ = env.reset(seed=1)
    actions = {agent: result.policies[agent].act(observations[agent]) for agent in env.agents}
    print(actions)
    result.save("handover")
    learner.close()
    # --8<-- [end:act]


if __name__ == "__main__":
    main()
