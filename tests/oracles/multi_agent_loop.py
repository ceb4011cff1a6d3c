"""Copies of an environment of many agents stepped in plain Python, with sets and dicts of names."""

import jax
import numpy as np

from tests.oracles.episode_loop import reset, step


class LoopedAgents:
    """One copy: who is left, what each has gathered, its own key, time limit and restart."""

    def __init__(self, env, key, fixed_init, offset):
        self.env, self.fixed_init, self.offset = env, fixed_init, offset
        self.later, first = jax.random.split(key)
        self.start = reset(env, first)
        self._begin(self.start)

    def _begin(self, start):
        self.state, self.observations = start
        self.length = 0
        self.out = set()
        self.gathered = {agent: [0.0, 0, 0.0] for agent in self.env.possible_agents}

    def left(self):
        alive = self.env.alive(self.state)
        return {agent for agent in self.env.possible_agents if bool(alive[agent]) and agent not in self.out}

    def _gather(self, agent, row, acted):
        gathered = self.gathered[agent]
        gathered[0] += row["reward"]
        gathered[1] += int(acted)
        gathered[2] += row["cost"]
        if row["terminated"] or row["truncated"]:
            self.out.add(agent)
        return dict(zip(("episode_return", "episode_length", "episode_cost"), gathered, strict=True))

    def step(self, actions):
        acting = self.left()
        self.state, finals, rewards, terminated, truncated, infos = step(self.env, self.state, actions)
        self.length += 1
        over = self.length + self.offset >= self.env.max_steps
        alive = self.env.alive(self.state)
        rows = {}
        for agent in self.env.possible_agents:
            row = {"reward": 0.0, "cost": 0.0, "terminated": False, "truncated": False}
            if agent in acting:
                row["reward"], row["cost"] = float(rewards[agent]), float(infos[agent].get("cost", 0))
                row["terminated"] = bool(terminated[agent])
                vanished = not alive[agent] and not row["terminated"]
                row["truncated"] = bool(truncated[agent]) or over or vanished
            rows[agent] = row | {
                "alive_before": agent in acting,
                "final_observation": np.asarray(finals[agent]),
                "info": {name: np.asarray(value) for name, value in infos[agent].items()},
                **self._gather(agent, row, agent in acting),
            }
        ended = over or not self.left()
        self.observations = finals
        if ended:
            self.offset = 0
            if not self.fixed_init:
                self.later, key = jax.random.split(self.later)
                self.start = reset(self.env, key)
            self._begin(self.start)
        for agent, row in rows.items():
            row["observation"] = np.asarray(self.observations[agent])
            row["alive"] = agent in self.left()
        return rows, ended


def run_agents_loop(env, key, actions, *, fixed_init, offset_step):
    """Return rows by agent stacked to `[T, B, ...]`, ends `[T, B]`, and first observations `[B, ...]`."""
    steps, copies = next(iter(actions.values())).shape[:2]
    offsets = [b * env.max_steps // copies if offset_step else 0 for b in range(copies)]
    pairs = zip(jax.random.split(key, copies), offsets, strict=True)
    loops = [LoopedAgents(env, k, fixed_init, offset) for k, offset in pairs]
    first = stacked([loop.observations for loop in loops])
    results = [
        [
            loop.step({agent: chosen[t, b] for agent, chosen in actions.items()})
            for b, loop in enumerate(loops)
        ]
        for t in range(steps)
    ]
    rows = stacked([stacked([rows for rows, _ in row]) for row in results])
    return first, rows, np.array([[ended for _, ended in row] for row in results])


def stacked(trees):
    return jax.tree.map(lambda *leaves: np.stack(leaves), *trees)
