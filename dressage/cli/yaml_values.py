"""Owns how YAML that a user wrote is read: an exponent without a dot makes a number too, as in YAML 1.2."""

import re
from typing import Any

import yaml

EXPONENTIAL = re.compile(r"[-+]?(?:\d[\d_]*(?:\.[\d_]*)?|\.\d[\d_]*)[eE][-+]?\d+")
"""YAML 1.1, which the library reads, wants a dot before the exponent and a sign after it."""


class _Loader(yaml.SafeLoader):
    """Reads plain values, and `1e-3` as one of them."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(f"^{EXPONENTIAL.pattern}$"), list("-+.0123456789")
)


def _tuple_as_list(loader: _Loader, node: yaml.SequenceNode) -> list[Any]:
    return loader.construct_sequence(node, deep=True)


# What `yaml.dump` makes of a tuple, and so what files hold that mjlab writes beside its runs.
_Loader.add_constructor("tag:yaml.org,2002:python/tuple", _tuple_as_list)


def read_yaml(text: str) -> Any:  # noqa: ANN401 (whatever the text holds)
    """Return what a text holds; what stands in quotes is a text, and a tuple of Python's is a list.

    Raises:
        yaml.YAMLError: If it is no YAML, or holds more than plain values.
    """
    return yaml.load(text, _Loader)
