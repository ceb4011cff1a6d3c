"""Importing dressage is cheap, and its parts appear when they are named."""

import subprocess
import sys
from pathlib import Path

import pytest

import dressage

FRAMEWORKS = ("jax", "jaxlib", "flax", "optax", "torch", "numpy", "scipy", "gymnasium", "matplotlib")
PARTS = sorted(
    path.stem
    for path in Path(dressage.__file__).parent.iterdir()
    if (path.suffix == ".py" and not path.stem.startswith("_")) or (path / "__init__.py").exists()
)


def run_python(code: str) -> str:
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


def loaded_frameworks_after(code: str) -> str:
    listing = f"print(*sorted(set(sys.modules) & set({FRAMEWORKS!r})))"
    return run_python(f"import sys\n{code}\n{listing}")


def test_importing_dressage_loads_no_framework():
    assert loaded_frameworks_after("import dressage") == ""


def test_listing_the_parts_and_asking_for_the_version_loads_no_framework():
    assert loaded_frameworks_after("import dressage; dir(dressage); dressage.__version__") == ""


def test_errors_and_options_load_no_framework():
    assert loaded_frameworks_after("import dressage; dressage.errors; dressage.config") == ""


def test_a_part_is_imported_when_it_is_first_named():
    assert run_python("import dressage; print(dressage.config.Option.__name__)") == "Option"


def test_the_listed_parts_are_those_that_exist():
    assert dir(dressage) == sorted(["__version__", *PARTS])


@pytest.mark.parametrize("part", PARTS)
def test_every_part_can_be_named_on_the_package(part):
    assert getattr(dressage, part).__name__ == f"dressage.{part}"


@pytest.mark.parametrize("name", ["pppo", "_private", "__wrapped__"])
def test_an_unknown_name_is_an_attribute_error_that_names_it(name):
    with pytest.raises(AttributeError, match=f"module 'dressage' has no attribute '{name}'"):
        getattr(dressage, name)


def test_python_suggests_the_nearest_part():
    command = [sys.executable, "-c", "import dressage; dressage.cofnig"]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert "Did you mean: 'config'?" in finished.stderr
