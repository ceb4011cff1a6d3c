"""A PPO run in chunks: `make_trainer` for functional environments and for host tasks."""

from typing import Any

import jax

from dressage.envs.adapters.gymnasium import HostTask
from dressage.envs.functional import BaseEnv
from dressage.errors import ConfigError
from dressage.learning.groups import Group
from dressage.learning.host_driver import HostRun, SeedBySeed
from dressage.learning.host_env import HostSingleAgentEnv
from dressage.learning.runs import CompiledRun, HostMetrics, Run
from dressage.learning.specs import AGENT, AgentSpec, ObservationLayout, agent_spec
from dressage.ppo.arguments import check_arguments
from dressage.ppo.config import Config
from dressage.ppo.fine_tuning import check_fits, start_from
from dressage.ppo.policy import NormalizeVec, Policy
from dressage.ppo.result import build_policy
from dressage.ppo.session import Session, proximal_learner


class Trainer:
    """One run of PPO that advances in chunks, over one or more seeds.

    Attributes:
        config: The checked configuration.
        run: What collects experience and learns.
        spec: The agent's spaces.
        layout: How its observations are flattened.
    """

    def __init__(self, config: Config, run: Run, spec: AgentSpec, layout: ObservationLayout) -> None:
        self.config = config
        self.run = run
        self.spec = spec
        self.layout = layout

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds that are trained side by side."""
        return self.run.seeds

    @property
    def steps_per_update(self) -> int:
        """Environment steps of one update of one seed."""
        return self.config.NUM_ENVS * self.config.NUM_STEPS

    @property
    def num_updates(self) -> int:
        """Updates of the whole run."""
        return self.config.NUM_UPDATES

    @property
    def exact_resume(self) -> bool:
        """Whether a checkpoint holds all that the rest of the run depends on."""
        return self.run.exact_resume

    def init(self) -> Any:  # noqa: ANN401 (the run's own state)
        """Return the state before the first update; it is what a checkpoint holds."""
        return self.run.init()

    def advance(self, state: Any, updates: int) -> tuple[Any, HostMetrics]:  # noqa: ANN401
        """Make `updates` updates; the state given is used up.

        Returns:
            The state after, and the chunk's metrics `[K]` by name.

        Raises:
            NonFiniteError: If the environment gave a number that is not finite.
        """
        return self.run.advance(state, updates)

    def evaluate(self, state: Any) -> HostMetrics:  # noqa: ANN401
        """Play the evaluation episodes, changing nothing; `[K, E]` by name, empty if `NUM_EVAL_ENVS` is 0."""
        return self.run.evaluate(state)

    def updates_done(self, state: Any) -> int:  # noqa: ANN401
        """Return the number of updates behind a state."""
        return self.run.updates_done(state)

    def steps_done(self, state: Any) -> int:  # noqa: ANN401
        """Return the environment steps behind a state, for each seed."""
        return self.updates_done(state) * self.steps_per_update

    def check_start(self, policy: Policy) -> None:
        """Refuse a policy that training cannot go on with.

        Raises:
            ConfigError: If spaces or networks differ; the text names what.
        """
        check_fits(policy, self.spec, self.config)

    def start_from(self, state: Any, policy: Policy, *, keep_statistics: bool = True) -> Any:  # noqa: ANN401
        """Put a policy's parameters into a fresh state, to go on training it.

        Args:
            state: What `init` returned; it is used up.
            policy: Made for the same spaces, with networks as the configuration says.
            keep_statistics: Whether its observation statistics are taken over; otherwise they begin anew.

        Raises:
            ConfigError: If spaces or networks differ; the text names what.
        """
        self.check_start(policy)
        return start_from(state, policy, keep_statistics=keep_statistics)

    def policy(self, state: Any, seed_index: int = 0) -> Policy:  # noqa: ANN401
        """Return the deployable policy of one seed."""
        agent = self.run.seed_state(state, seed_index).agents[0]
        scaling = NormalizeVec.of(agent.observation_moments)
        # Copied, since the next chunk reuses the state's memory.
        params, scaling = jax.tree.map(lambda leaf: leaf.copy(), (agent.params["params"], scaling))
        return build_policy(self.config, self.spec, self.layout, params, scaling)


def make_trainer(env: BaseEnv | HostTask, config: Config, seeds: tuple[int, ...] = (0,)) -> Trainer:
    """Prepare a run of PPO in chunks.

    Args:
        env: A functional environment (one compiled program, seeds vmapped) or a host task (stepped in
            Python).
        config: The configuration.
        seeds: The seeds to train side by side.

    Raises:
        ConfigError: If the configuration is not legal for this environment or is none, or there is no seed.
        EnvironmentContractError: If the environment breaks its contract.
        UnsupportedSpaceError: If its spaces are not supported.
    """
    check_arguments(env, config, "make_trainer", host=True)
    if isinstance(seeds, int):
        raise ConfigError(f"`make_trainer` takes a tuple of seeds, got {seeds!r}: seeds=({seeds!r},).")
    if not seeds:
        raise ConfigError("A run needs at least one seed, got none.")
    if isinstance(env, HostTask):
        return _host_trainer(env, config, seeds)
    session = Session.of(env, config)
    steps, spec = session.config.NUM_STEPS, session.env.spec
    run = CompiledRun(session.env, session.groups, steps, seeds, session.eval_env, session.max_steps)
    return Trainer(session.config, run, spec, session.env.layout)


def _host_trainer(task: HostTask, config: Config, seeds: tuple[int, ...]) -> Trainer:
    config = config.validate()
    if config.OFFSET_STEP:
        raise ConfigError(
            "PPO option 'OFFSET_STEP' works on functional environments only; leave it False for host tasks."
        )
    spec = agent_spec(AGENT, task.observation_space.to_gymnasium(), task.action_space.to_gymnasium())
    groups = (Group(proximal_learner(spec, config), (AGENT,)),)
    runs = [
        HostRun(
            make_env=lambda copies: HostSingleAgentEnv(task.make(copies)),
            groups=groups,
            steps=config.NUM_STEPS,
            seed=seed,
            copies=config.NUM_ENVS,
            eval_copies=config.NUM_EVAL_ENVS,
            max_steps=task.max_steps,
        )
        for seed in seeds
    ]
    run: Run = runs[0] if len(runs) == 1 else SeedBySeed(runs)
    # The adapter flattens observations before a policy sees them.
    return Trainer(config, run, spec, ObservationLayout("box", (spec.obs_dim,)))
