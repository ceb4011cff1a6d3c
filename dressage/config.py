"""Declared options: merging, checking and the texts that refuse a wrong one.

Every learner declares its options as a tuple of `Option`; validation, the documentation's tables and the
command line all read that one declaration.
"""

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Literal

from dressage.errors import ConfigError

_ONE_MEANING = (
    {"lr", "learning_rate"},
    {"num_steps", "n_steps", "rollout_length", "num_steps_per_env"},
    {
        *("epochs", "num_epochs", "n_epochs", "ppo_epochs"),
        *("update_epochs", "learning_epochs", "num_learning_epochs"),
    },
    {"num_minibatches", "n_minibatches", "mini_batches", "num_mini_batches"},
    {"num_envs", "n_envs"},
    {"gamma", "discount", "discount_factor"},
    {"gae_lambda", "lambda", "lam"},
    {"clip_eps", "clip_range", "clip_coef", "clip_param"},
    {"ent_coef", "entropy_coef"},
    {"vf_coef", "value_coef", "value_loss_coef"},
    {"anneal_lr", "anneal_learning_rate"},
    {"normalize_env", "normalize_observations"},
    {"hidden_activation", "activation", "network.activation"},
    {"num_hidden_units", "hidden_sizes", "network.hidden_sizes"},
    {"num_hidden_layers", "hidden_sizes", "network.hidden_sizes"},
)
"""What the learners here and elsewhere call the same option, in lower case."""

Kind = Literal[
    "integer",
    "number",
    "boolean",
    "choice",
    "integers",
    "numbers",
    "number by agent",
    "text",
    "mapping",
]


_NUMERIC = ("integer", "number", "number by agent")


@dataclass(frozen=True)
class Option:
    """One option of a learner: its default, its legal values, its unit and its meaning.

    Attributes:
        name: The option's name as users write it; a dot separates nested names.
        default: The value where none is given.
        kind: `integer`, `number`, `boolean`, `choice` (one of `choices`), `integers` or `numbers` (a tuple of
            them), `number by agent` (one for all agents, or a mapping with each agent's own), `text` or
            `mapping` (nested options of another library).
        minimum: The least legal value.
        maximum: The greatest legal value.
        open_minimum: Whether `minimum` itself is excluded.
        open_maximum: Whether `maximum` itself is excluded.
        choices: The legal names of a `choice`.
        optional: Whether `None` is legal.
        besides: Numbers that are legal though they lie outside the bounds; infinity is legal only here.
        unit: The unit of the value (steps, environments, nats, ...); empty where it has none.
        help: One line that says what the option does.
    """

    name: str
    default: Any
    kind: Kind
    minimum: float = -math.inf
    maximum: float = math.inf
    open_minimum: bool = False
    open_maximum: bool = False
    choices: tuple[str, ...] = ()
    optional: bool = False
    besides: tuple[float, ...] = ()
    unit: str = ""
    help: str = ""

    def allowed(self) -> str:
        """Describe the legal values in words, for error texts and tables."""
        if self.kind == "boolean":
            words = "True or False"
        elif self.kind == "choice":
            words = "one of " + ", ".join(repr(choice) for choice in self.choices)
        else:
            noun = {
                "integer": "an integer",
                "number": "a finite number",
                "integers": "a sequence of integers",
                "numbers": "a sequence of finite numbers",
                "number by agent": "a finite number, or a mapping from agents to such numbers,",
                "text": "a text that is not empty",
                "mapping": "a mapping from names to values",
            }
            words = (noun[self.kind] + self._range()).removesuffix(",")
        return words + (" or None" if self.optional else "")

    def check(self, value: Any, owner: str) -> Any:  # noqa: ANN401 (options hold values of several types)
        """Return `value` in the option's own type.

        Args:
            value: What the user gave.
            owner: The learner or configuration that the option belongs to, for the error's text.

        Raises:
            ConfigError: If the value has the wrong type or lies outside its range.
        """
        if value is None and self.optional:
            return None
        checked = _CONVERTERS[self.kind](value, self)
        if checked is None:
            near = nearest_name(value, self.choices) if isinstance(value, str) else None
            remedy = f" Did you mean {near!r}?" if near else ""
            if self.kind in _NUMERIC and _is_quoted_number(value):
                remedy = (
                    " It is a text: leave out the quotes; YAML wants a dot before an exponent, as in 1.0e-3."
                )
            raise ConfigError(
                f"{owner} option {self.name!r} must be {self.allowed()}, got {value!r}.{remedy}"
            )
        return checked

    def in_range(self, number: float) -> bool:
        """Whether a number lies within the declared bounds, or is legal besides."""
        if number in self.besides:
            return True
        above = number > self.minimum if self.open_minimum else number >= self.minimum
        below = number < self.maximum if self.open_maximum else number <= self.maximum
        return above and below

    def _range(self) -> str:
        low = "" if self.minimum == -math.inf else f"{'>' if self.open_minimum else '>='} {self.minimum:g}"
        high = "" if self.maximum == math.inf else f"{'<' if self.open_maximum else '<='} {self.maximum:g}"
        bounds = " and ".join(bound for bound in (low, high) if bound)
        return (f" {bounds}" if bounds else "") + "".join(f", or {number:g}" for number in self.besides)


def _is_quoted_number(value: Any) -> bool:  # noqa: ANN401
    try:
        return isinstance(value, str) and math.isfinite(float(value))
    except ValueError:
        return False


def check_names(given: Iterable[str], known: Sequence[str], owner: str) -> None:
    """Refuse names that are not declared, each with the nearest one that is.

    Args:
        given: The names that the user wrote.
        known: The declared names.
        owner: Whose options they are, for the text.

    Raises:
        ConfigError: If any given name is unknown; the text lists every unknown name.
    """
    unknown = [name for name in given if name not in known]
    if not unknown:
        return
    raise ConfigError(" ".join(f"{owner} has no option {name!r}.{suggest(name, known)}" for name in unknown))


def suggest(name: str, known: Iterable[str]) -> str:
    """Return ` Did you mean 'x'?` for the nearest known name, or a list of all names where none is near."""
    names = list(known)
    near = nearest_name(name, names)
    return f" Did you mean {near!r}?" if near else f" Known: {', '.join(sorted(names))}."


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that means what `name` does, else that which is spelled most like it, or None.

    Case is ignored, since a wrong case is the commonest slip.
    """
    by_folded = {candidate.casefold(): candidate for candidate in known}
    folded = name.casefold()
    synonyms = [other for names in _ONE_MEANING if folded in names for other in sorted(names)]
    matches = [other for other in (folded, *synonyms) if other in by_folded]
    matches = matches or difflib.get_close_matches(folded, by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def merge_configs(defaults: Mapping[str, Any], overrides: Mapping[str, Any] | None) -> dict[str, Any]:
    """Lay overrides over defaults; nested mappings merge, everything else is replaced.

    Args:
        defaults: The base; left unchanged at every depth.
        overrides: What differs; `None` means nothing; left unchanged.

    Returns:
        A new dictionary that shares no mapping and no list with either input.
    """
    merged = {name: _copy(value) for name, value in defaults.items()}
    for name, value in (overrides or {}).items():
        if isinstance(value, Mapping) and isinstance(merged.get(name), Mapping):
            merged[name] = merge_configs(merged[name], value)
        else:
            merged[name] = _copy(value)
    return merged


def whole_number(value: Any) -> int | None:  # noqa: ANN401 (reads whatever a user wrote)
    """Return an integer where the value is one (`1e6` counts, `True`, `"4"` and 2.5 do not), else None."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if isinstance(value, Integral):
        return int(value)
    return int(math.floor(value)) if math.isfinite(value) and float(value).is_integer() else None


def _copy(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, Mapping):
        return {name: _copy(item) for name, item in value.items()}
    return [_copy(item) for item in value] if isinstance(value, list) else value


def _integer(value: Any, option: Option) -> int | None:  # noqa: ANN401
    number = whole_number(value)
    return number if number is not None and option.in_range(number) else None


def _number(value: Any, option: Option) -> float | None:  # noqa: ANN401
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if not math.isfinite(value) and value not in option.besides:
        return None
    return float(value) if option.in_range(float(value)) else None


def _boolean(value: Any, option: Option) -> bool | None:  # noqa: ANN401, ARG001 (one signature for all kinds)
    return value if isinstance(value, bool) else None


def _choice(value: Any, option: Option) -> str | None:  # noqa: ANN401
    return value if isinstance(value, str) and value in option.choices else None


def _integers(value: Any, option: Option) -> tuple[int, ...] | None:  # noqa: ANN401
    if isinstance(value, str) or not isinstance(value, Sequence):
        return None
    numbers = [_integer(item, option) for item in value]
    return None if any(number is None for number in numbers) else tuple(n for n in numbers if n is not None)


def _numbers(value: Any, option: Option) -> tuple[float, ...] | None:  # noqa: ANN401
    if isinstance(value, str) or not isinstance(value, Sequence):
        return None
    numbers = [_number(item, option) for item in value]
    return None if any(number is None for number in numbers) else tuple(n for n in numbers if n is not None)


def _number_by_agent(value: Any, option: Option) -> float | dict[str, float] | None:  # noqa: ANN401
    if not isinstance(value, Mapping):
        return _number(value, option)
    numbers = {str(agent): _number(item, option) for agent, item in value.items()}
    checked = {agent: number for agent, number in numbers.items() if number is not None}
    return checked if checked and len(checked) == len(value) else None


def _text(value: Any, option: Option) -> str | None:  # noqa: ANN401, ARG001 (one signature for all kinds)
    return value if isinstance(value, str) and value else None


def _mapping(value: Any, option: Option) -> dict[str, Any] | None:  # noqa: ANN401, ARG001
    return merge_configs(value, None) if isinstance(value, Mapping) else None


_CONVERTERS: dict[str, Callable[[Any, Option], Any]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
    "choice": _choice,
    "integers": _integers,
    "numbers": _numbers,
    "number by agent": _number_by_agent,
    "text": _text,
    "mapping": _mapping,
}
