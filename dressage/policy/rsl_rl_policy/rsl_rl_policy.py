"""Owns `RSLRLPolicy`: rsl_rl's algorithms in the two roles that an engine drives.

TRAIN holds rsl_rl's algorithm with optimiser and storage; EVAL holds the same models and nothing to learn
with. In one process, from one seed, both together learn exactly what `rsl_rl.runners.OnPolicyRunner` learns.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor, nn

from dressage.config import merge_configs, whole_number
from dressage.errors import ConfigError, RoleError, RolloutError
from dressage.learning.policy_graph import Deployment
from dressage.policy.base_policy import (
    BasePolicy,
    EnvMeta,
    EnvRet,
    EvalConfig,
    Fragment,
    PolicyConfig,
    PolicyResponse,
    PolicyRole,
    TrainConfig,
    Weights,
)
from dressage.policy.rsl_rl_policy import (
    acting,
    checkpoint_files,
    fragments,
    learning,
    off_policy,
    random_stream,
)
from dressage.policy.rsl_rl_policy.algorithm import construct
from dressage.policy.rsl_rl_policy.arguments import check_answer, check_device, check_type
from dressage.policy.rsl_rl_policy.configuration import Algorithm, algorithm_class, model_names
from dressage.policy.rsl_rl_policy.deployment import actor_deployment
from dressage.policy.rsl_rl_policy.env_meta import ExampleObservation, RSLRLVecEnvMeta
from dressage.policy.rsl_rl_policy.layout import layout_of
from dressage.policy.rsl_rl_policy.module_states import (
    as_array,
    as_arrays,
    flatten,
    load_states,
    read_states,
    unflatten,
)
from dressage.policy.rsl_rl_policy.optimizers import make_optimizer
from dressage.policy.rsl_rl_policy.ranks import join_ranks, ranks_config
from dressage.policy.rsl_rl_policy.release import check_release
from dressage.policy.rsl_rl_policy.rollout_checks import check_fragment, check_lags, check_rollout_state
from dressage.policy.rsl_rl_policy.update_metrics import (
    METRIC_KINDS,
    corrected_metrics,
    filled_metrics,
    loss_metrics,
    state_metrics,
)

__all__ = ["ExampleObservation", "PolicyRole", "RSLRLPolicy", "RSLRLVecEnvMeta"]

SCHEDULE = "schedule"
"""Name under which the adaptive learning rate travels with the modules' states."""


class RSLRLPolicy(BasePolicy):
    """A policy that rsl_rl's PPO or Distillation trains.

    Args:
        config: `policy_kwargs` is the training configuration that rsl_rl's runner takes.
        role_type: TRAIN or EVAL, or their names.

    Attributes:
        algo: The algorithm; None before `init_train` or `init_eval`.
        algo_cls: Its class.

    Raises:
        ConfigError: If rsl_rl's release is none of those tested, or it has no such algorithm; if
            `config.type` names another policy, or torch has no such device here.
    """

    metric_kinds = METRIC_KINDS

    algo: Algorithm
    algo_cls: type[Algorithm]

    def __init__(self, config: PolicyConfig, role_type: PolicyRole | str) -> None:
        super().__init__(config, role_type)
        check_release()
        check_type(config, RSLRLPolicy, type(self))
        check_device(config.device)
        self.algo_cls = algorithm_class(config.policy_kwargs)
        self.algo = None
        self._models = model_names(self.algo_cls)
        self._eval_config = EvalConfig()
        self._ranks: dict[str, int] | None = None
        self._filled: dict[str, float] | None = None
        self._answered: WeakValueDictionary[int, PolicyResponse] = WeakValueDictionary()

    @property
    def num_steps(self) -> int:
        """Steps of each copy that one update learns from (`num_steps_per_env`)."""
        steps = whole_number(self.config.policy_kwargs.get("num_steps_per_env"))
        if steps is None:
            raise ConfigError(
                "rsl_rl's training configuration lacks 'num_steps_per_env', a whole number of steps."
            )
        return steps

    # The seed's signature; what comes besides would be ignored, so it is refused.
    def construct_network(
        self,
        model_config: Mapping[str, Any] | None = None,
        env_meta: EnvMeta | None = None,
        *args: object,
        **kwargs: object,
    ) -> None:
        """Build rsl_rl's algorithm with its models.

        Args:
            model_config: What differs from the training configuration, nested alike.
            env_meta: What the models are for, an `RSLRLVecEnvMeta`.
            *args: None may be given.
            **kwargs: None may be given.

        Raises:
            ConfigError: If the configuration does not fit rsl_rl or the environment, `env_meta` is missing or
                incomplete, or there are further arguments.
        """
        if args or kwargs:
            given = ", ".join([*map(repr, args), *kwargs])
            raise ConfigError(
                f"construct_network takes model_config and env_meta and nothing else, got {given}."
            )
        if not isinstance(env_meta, RSLRLVecEnvMeta):
            raise ConfigError(
                f"RSLRLPolicy needs an RSLRLVecEnvMeta as env_meta, got {type(env_meta).__name__}."
            )
        config = merge_configs(self.config.policy_kwargs, model_config)
        self.algo = construct(config, env_meta.checked(), self.config.device, self._ranks)
        self._layout = layout_of(self.algo, self._models)

    def init_train(self, train_config: TrainConfig, env_meta: EnvMeta | None = None) -> None:
        """Build the learner; parameters are drawn from torch's own stream, as rsl_rl's runner draws them.

        Args:
            train_config: Optimiser and ranks.
            env_meta: An `RSLRLVecEnvMeta` whose `num_envs` counts the copies of all workers.

        Raises:
            ConfigError: As `construct_network`; or if ranks are asked for without a process group.
            RoleError: If this policy's role is EVAL.
        """
        self._check_role(PolicyRole.TRAIN, "init_train")
        self._ranks = ranks_config(train_config)
        self.construct_network(None, env_meta)
        if train_config.optimizer is not None:
            self.setup_optimizer(train_config.optimizer)
        self.algo.train_mode()
        if self._ranks is not None:
            join_ranks(self.algo, self.algo.storage.num_envs)

    def init_eval(self, eval_config: EvalConfig | None = None, env_meta: EnvMeta | None = None) -> None:
        """Build what acts; it takes nothing from torch's random stream and holds no optimiser and no storage.

        Args:
            eval_config: How to act.
            env_meta: An `RSLRLVecEnvMeta` of the environment beside it.

        Raises:
            ConfigError: As `construct_network`.
            RoleError: If this policy's role is TRAIN.
        """
        self._check_role(PolicyRole.EVAL, "init_eval")
        self._eval_config = eval_config or EvalConfig()
        with torch.random.fork_rng(devices=random_stream.forked_devices(self.config.device)):
            self.construct_network(None, env_meta)
        self.algo.eval_mode()
        self.algo.optimizer = self.algo.storage = None
        if getattr(self.algo, "rnd", None) is not None:
            self.algo.rnd.optimizer = None

    def setup_optimizer(self, optim_cfg: Mapping[str, Any] | None) -> None:
        """Rebuild the optimiser over the algorithm's parameters, without the momentum it had.

        Args:
            optim_cfg: `class_name`, `learning_rate` and arguments of torch's optimiser; what is left out is
                as it is now. None rebuilds the present one.

        Raises:
            ConfigError: If anything in it cannot be honoured.
            RoleError: If this policy learns nothing.
        """
        algorithm = self._built(PolicyRole.TRAIN, "setup_optimizer")
        algorithm.optimizer = make_optimizer(algorithm, optim_cfg or {})
        algorithm.learning_rate = algorithm.optimizer.param_groups[0]["lr"]

    def collecting(self) -> AbstractContextManager[None]:
        """Return torch's inference mode, in which rsl_rl's runner steps its environment too."""
        return torch.inference_mode()

    def rollout_step(self, env_ret: EnvRet) -> PolicyResponse:
        """Choose an action for every copy.

        Returns:
            The pending response: action, value, log-probability, distribution parameters, the recurrent state
            before the step, and the version of the weights.

        Raises:
            EnvironmentContractError: If an observation group is missing, or has another shape or type.
        """
        algorithm = self._built(PolicyRole.EVAL, "rollout_step")
        check_answer(env_ret, "rollout_step")
        with _inference():
            if self._eval_config.deterministic:
                return acting.choose_mean(algorithm, self._layout, env_ret, self.version, self.config.device)
            return acting.choose(
                algorithm, self._models, self._layout, env_ret, self.version, self.config.device
            )

    def postprocess(self, env_ret: EnvRet, policy_resp: PolicyResponse) -> PolicyResponse:
        """Join the pending response of step t with the return that answers it, into one transition of step t.

        Recurrent state of copies whose episode ended begins anew. A time limit gets the value that
        `config.time_out_bootstrap` says.

        Args:
            env_ret: What the environment returned to the response's action.
            policy_resp: The pending response.

        Raises:
            EnvironmentContractError: If the return lacks reward or flags, or they have another size.
            RolloutError: If the response was answered already, or is another environment's.
        """
        algorithm = self._built(PolicyRole.EVAL, "postprocess")
        check_answer(env_ret, "postprocess")
        if self._answered.get(id(policy_resp)) is policy_resp:
            raise RolloutError(
                "The response was answered already: every step needs a rollout_step of its own."
            )
        with _inference():
            rule = self.config.time_out_bootstrap
            whole = acting.answer(algorithm, self._models, self._layout, env_ret, policy_resp, rule)
        self._answered[id(policy_resp)] = policy_resp
        return whole

    def close_fragment(
        self, transitions: Sequence[PolicyResponse], env_ret: EnvRet, *, host: bool = True
    ) -> Fragment:
        """Put the transitions of a rollout together; see `BasePolicy.close_fragment`.

        Raises:
            RolloutError: If there is none, one is pending, or the weights changed on the way.
            EnvironmentContractError: If the environment overwrites the observations that it gave out.
        """
        algorithm = self._built(PolicyRole.EVAL, "close_fragment")
        with torch.inference_mode():
            state = acting.hidden_state(algorithm, self._models)
            hidden = {f"hidden_state/{name}": tensor for name, tensor in state.items()}
            return fragments.stack(transitions, env_ret, hidden, self._layout, self.config.device, host=host)

    def update_dataset(self, data: Any) -> None:  # noqa: ANN401 (a batch, a fragment, or a list of either)
        """Put the data of one update into the storage and compute the returns.

        Args:
            data: A `TensorDict` `[T, N]` as `fragments.to_tensordict` makes it, a `Fragment`, or a list of
                either, laid side by side along `N`. Together they must fill the storage exactly.

        Where it fails, the policy is as it was before.

        Raises:
            RolloutError: If the storage would be part-filled or over-full, is filled already, or data are
                missing or of another shape or type.
            NonFiniteError: If a number is not finite.
            StaleWeightsError: If older weights acted and the rollout mode is `sync`.
        """
        algorithm = self._built(PolicyRole.TRAIN, "update_dataset")
        if self._filled is not None:
            raise RolloutError("The storage is filled already: call train() before update_dataset() again.")
        given = self._fragments(data)
        for fragment in given:
            check_fragment(fragment, self._layout)
        lags = check_lags(given, self.version, self.config.rollout_mode, self._models)
        with torch.inference_mode():
            steps, last, finals = fragments.join(given, self.config.device)
            learning.check_size(algorithm, steps)
            with learning.all_or_nothing(algorithm, self._models):
                filled = learning.fill(algorithm, self._models, steps, last)
                corrected = off_policy.correct(algorithm, steps, last, finals) if any(lags) else None
        self._filled = filled_metrics(filled, lags) | corrected_metrics(corrected)

    def train(self) -> dict[str, float]:
        """Make one update of the algorithm.

        Returns:
            `training/...`: losses, learning rate, mean spread of the actions, time limits by the rule that
            followed them, lag of the weights.

        Raises:
            RolloutError: If there are no data, or Distillation has no teacher yet.
            NonFiniteError: If the update diverged; the weights are worth nothing then.
        """
        algorithm = self._built(PolicyRole.TRAIN, "train")
        if self._filled is None:
            raise RolloutError("There are no data to learn from: call update_dataset() before train().")
        if getattr(algorithm, "teacher_loaded", True) is False:
            raise RolloutError(
                "Distillation has no teacher yet: load_checkpoint(PATH) of a policy that PPO trained."
            )
        losses = learning.update(algorithm, self._modules().values(), self.version)
        metrics, self._filled = self._filled, None
        self.version += 1
        return loss_metrics(losses) | state_metrics(algorithm) | metrics

    def deployment(self) -> Deployment:
        """Return what the files of the actor are made of; see `dressage.export.export_policy`.

        Raises:
            ConfigError: If the actor cannot be exported whole.
        """
        algorithm = self._built(None, "deployment")
        return actor_deployment(algorithm.get_policy())

    def get_trainable_parameters(self) -> dict[str, dict[str, Tensor]]:
        """Return clones of the states of all modules, buffers included, and of the learning rate."""
        algorithm = self._built(None, "get_trainable_parameters")
        rate = {"learning_rate": torch.tensor(algorithm.learning_rate, dtype=torch.float64)}
        return read_states(self._modules()) | {SCHEDULE: rate}

    def load_state_dict(self, state_dict: Mapping[str, Mapping[str, Any]]) -> None:
        """Load what `get_trainable_parameters` returned.

        Args:
            state_dict: By module and name; torch tensors or NumPy arrays.

        Raises:
            WeightsError: If modules, names or shapes differ, or there is a NaN; the text lists them, and
                nothing was changed.
        """
        algorithm = self._built(None, "load_state_dict")
        states = {module: tensors for module, tensors in state_dict.items() if module != SCHEDULE}
        load_states(self._modules(), states)
        if SCHEDULE in state_dict:
            self._set_learning_rate(float(state_dict[SCHEDULE]["learning_rate"]))
        if hasattr(algorithm, "teacher_loaded"):
            algorithm.teacher_loaded = True

    def weights(self, *, host: bool = True) -> Weights:
        """Return a snapshot of `get_trainable_parameters`, as NumPy arrays or as torch's."""
        flat = flatten(self.get_trainable_parameters())
        return Weights(self.version, as_arrays(flat) if host else flat)

    def load_weights(self, weights: Weights) -> None:
        """Load a snapshot and take on its version; recurrent state goes on.

        Raises:
            WeightsError: As `load_state_dict`.
        """
        self.load_state_dict(unflatten(weights.arrays))
        self.version = weights.version

    def rollout_state(self) -> dict[str, np.ndarray]:
        """Return the recurrent state by `module/I`, `[N, layers, units]` each."""
        algorithm = self._built(PolicyRole.EVAL, "rollout_state")
        return {
            name: as_array(part).copy() for name, part in acting.hidden_state(algorithm, self._models).items()
        }

    def load_rollout_state(self, state: Mapping[str, np.ndarray]) -> None:
        """Go on from what `rollout_state` returned; an empty one begins anew.

        Raises:
            RolloutError: If it is of other modules, or of another shape.
        """
        algorithm = self._built(PolicyRole.EVAL, "load_rollout_state")
        check_rollout_state(state, self._layout)
        with torch.inference_mode():
            acting.load_hidden_state(algorithm, self._models, state, self.config.device)

    def random_state(self) -> np.ndarray:
        """Return the state of torch's random stream, which is one for the whole process."""
        return random_stream.read(self.config.device)

    def load_random_state(self, state: np.ndarray) -> None:
        """Go on drawing from where `random_state` stood."""
        random_stream.load(state, self.config.device)

    def seed(self, seed: int) -> None:
        """Start torch's random stream anew.

        Raises:
            ConfigError: If the seed is no whole number from 0 to 2^63 - 1.
        """
        number = whole_number(seed)
        if number is None or not 0 <= number < 2**63:
            raise ConfigError(f"A seed must be a whole number from 0 to 2^63 - 1, got {seed!r}.")
        torch.manual_seed(number)

    def save_checkpoint(self, path: Path | str, note: Mapping[str, Any]) -> None:
        """Write a checkpoint that rsl_rl's runner loads too.

        Raises:
            CheckpointError: If the note holds more than plain values and arrays; nothing is written then.
        """
        algorithm = self._built(PolicyRole.TRAIN, "save_checkpoint")
        checkpoint_files.write(Path(path), checkpoint_files.collect(algorithm, self.version, note))

    def load_checkpoint(self, path: Path | str) -> dict[str, Any]:
        """Read a checkpoint of ours or of rsl_rl's runner; EVAL takes the weights alone."""
        algorithm, path = self._built(None, "load_checkpoint"), Path(path)
        if self.role_type is PolicyRole.EVAL:
            return self.load_content(checkpoint_files.read(path, self.config.device), path)
        content = checkpoint_files.load(path, algorithm)
        self.version = content.version
        self._filled = None
        algorithm.storage.clear()  # What was to be learned from was acted by other weights.
        return content.note

    def load_content(
        self, content: Mapping[str, Any], path: Path = checkpoint_files.IN_MEMORY
    ) -> dict[str, Any]:
        """Take the weights of a checkpoint that was read already, and return its note. EVAL only."""
        self._built(PolicyRole.EVAL, "load_content")
        models = {name: module for name, module in self._modules().items() if name in self._models}
        found = checkpoint_files.load_weights(content, models, path)
        self.version = found.version
        return found.note

    def _fragments(self, data: Any) -> list[Fragment]:  # noqa: ANN401
        parts = (
            [data]
            if isinstance(data, TensorDict | Fragment) or not isinstance(data, Iterable)
            else list(data)
        )
        if not parts:
            raise RolloutError("There is no fragment in the data, so the storage would stay empty.")
        return [self._fragment(part) for part in parts]

    def _fragment(self, part: Any) -> Fragment:  # noqa: ANN401
        if isinstance(part, Fragment):
            return part
        if isinstance(part, TensorDict):
            return fragments.from_tensordict(part, self.version)
        raise RolloutError(f"update_dataset takes TensorDicts and Fragments, got {type(part).__name__}.")

    def _modules(self) -> dict[str, nn.Module]:
        raw = {name: getattr(self.algo, f"_raw_{name}", getattr(self.algo, name)) for name in self._models}
        rnd = getattr(self.algo, "rnd", None)
        return raw if rnd is None else raw | {"rnd": rnd}

    def _set_learning_rate(self, rate: float) -> None:
        self.algo.learning_rate = rate
        if self.algo.optimizer is not None:
            for entry in self.algo.optimizer.param_groups:
                entry["lr"] = rate

    def _built(self, role: PolicyRole | None, method: str) -> Algorithm:
        if role is not None:
            self._check_role(role, method)
        if self.algo is None:
            first = "init_train" if self.role_type is PolicyRole.TRAIN else "init_eval"
            raise RoleError(f"{method} needs a policy that is built: call {first} first.")
        return self.algo

    def _check_role(self, role: PolicyRole, method: str) -> None:
        if self.role_type is not role:
            _refuse_role(role, self.role_type, method)


def _inference() -> AbstractContextManager[None]:
    """Return inference mode, or nothing where it is on: entering it again would cost time at every step."""
    return nullcontext() if torch.is_inference_mode_enabled() else torch.inference_mode()


def _refuse_role(role: PolicyRole, own: PolicyRole, method: str) -> NoReturn:
    raise RoleError(f"{method} belongs to the role {role.name}; this policy's is {own.name}.")
