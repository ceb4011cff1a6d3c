"""The few exceptions of dressage; every one of them says what is wrong, where, and what to do."""


class DressageError(Exception):
    """Base of all errors that a user can mend; the command line prints its text without a trace."""


class ConfigError(DressageError, ValueError):
    """An option is unknown, of the wrong type, or out of its range."""


class UnsupportedSpaceError(DressageError, TypeError):
    """A space that no policy here can observe or act in; the text names agent and space."""


class EnvironmentContractError(DressageError, ValueError):
    """An environment broke its contract: a missing key, a wrong shape, a missing final observation."""


class NonFiniteError(DressageError, FloatingPointError):
    """An environment or a loss gave NaN or infinity; the text names environment, step and field."""


class CheckpointError(DressageError):
    """A checkpoint is incomplete, altered, or made for another run; the text names its path."""


class MissingExtraError(DressageError, ImportError):
    """An optional package is not installed; the text names the extra that brings it."""


def install_command(extra: str) -> str:
    """Return how an extra is installed, in words for a text; `pip install -e` is for a clone."""
    return f"pip install 'dressage[{extra}]' (in a clone: pip install -e '.[{extra}]')"


class EnvironmentRaisedError(DressageError, RuntimeError):
    """An environment raised; the text names copy, step and what it raised, a note has its trace."""


class WorkerLostError(DressageError, RuntimeError):
    """A worker died or gave no answer in time; the text names it, its process and its exit code.

    Attributes:
        hung: Whether it gave no answer in time, in place of having died.
    """

    hung = False


class RoleError(DressageError, RuntimeError):
    """A policy was asked for what its role does not do, or before it was built."""


class RolloutError(DressageError, ValueError):
    """Data for an update are missing, part-filled, over-full or of another shape than the storage takes."""


class WeightsError(DressageError, ValueError):
    """Weights do not fit the modules; the text lists names and shapes."""


class StaleWeightsError(DressageError, RuntimeError):
    """A rollout was acted by older weights than the learner allows; the text names both versions."""
