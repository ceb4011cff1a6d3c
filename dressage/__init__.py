"""dressage: on-policy reinforcement learning that stays inside the arena.

`import dressage` loads no framework. A part is imported when it is first named, so that
`dressage.ppo.train` works after a plain `import dressage`.
"""

import importlib
import importlib.util
import pkgutil
import sys
from types import ModuleType

__version__ = "0.1.0"


def __getattr__(name: str) -> ModuleType:
    # The one module-level __getattr__ that the house style allows: the package's lazy names.
    path = f"{__name__}.{name}"
    if name.startswith("_") or importlib.util.find_spec(path) is None:
        # `name` and `obj` let Python itself suggest the nearest part.
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    return importlib.import_module(path)


def __dir__() -> list[str]:
    parts = {part.name for part in pkgutil.iter_modules(__path__) if not part.name.startswith("_")}
    return sorted({"__version__", *parts})
