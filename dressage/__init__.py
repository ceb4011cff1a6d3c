"""dressage: on-policy reinforcement learning that stays inside the arena.

`import dressage` loads no framework. A part is imported when it is first named, so that
`dressage.ppo.train` works after a plain `import dressage`.
"""

import importlib
from types import ModuleType

__version__ = "0.1.0"

_PARTS = (
    "cli",
    "config",
    "envs",
    "equations",
    "errors",
    "export",
    "learning",
    "networks",
    "policy",
    "ppo",
    "reporting",
    "rl",
    "runtime",
    "shield",
    "workers",
)


def __getattr__(name: str) -> ModuleType:
    # The package's lazy names are the one use of a module-level __getattr__ that the house style allows.
    if name not in _PARTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}. Parts: {', '.join(_PARTS)}.")
    return importlib.import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_PARTS})
