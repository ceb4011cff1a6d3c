"""What a run needs is imported when it is needed: neither Ray nor a framework before it is named."""

import subprocess
import sys

import pytest

LISTING = "print(*sorted({'jax', 'ray', 'torch', 'tensordict'} & set(sys.modules)))"
WITHOUT_RAY = "import sys\nsys.modules['ray'] = None\n"


def run_python(code):
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout.strip()


@pytest.mark.parametrize("module", ["dressage.runtime", "dressage.runtime.processes", "dressage.workers"])
def test_the_engine_and_the_workers_load_no_framework(module):
    assert run_python(f"import sys\nimport {module}\n{LISTING}") == ""


def test_a_run_without_a_cluster_does_not_miss_ray():
    code = WITHOUT_RAY + (
        "from dressage.runtime import Engine, RuntimeConfig\n"
        "from tests.runtime.toys import spec\n"
        "with Engine(spec(), RuntimeConfig(workers=2, transport='inline')) as engine:\n"
        "    print(engine.run(2).updates)\n"
    )
    assert run_python(code) == "2"


def test_a_cluster_without_ray_is_refused_with_the_extra():
    code = (
        "import importlib.util\n"
        "importlib.util.find_spec = lambda name: None\n"
        "from dressage.errors import MissingExtraError\n"
        "from dressage.runtime import RuntimeConfig\n"
        "from dressage.runtime.transports import make_transport\n"
        "from tests.runtime.toys import spec\n"
        "try:\n"
        "    make_transport(spec(), RuntimeConfig(address='local'))\n"
        "except MissingExtraError as error:\n"
        "    print(error)\n"
    )
    assert run_python(code) == (
        "A cluster needs Ray. Install it with: pip install 'dressage[ray]' "
        "(in a clone: pip install -e '.[ray]')"
    )


def test_environments_on_ray_without_ray_are_refused_with_the_extra():
    code = WITHOUT_RAY + (
        "from dressage.errors import MissingExtraError\n"
        "try:\n"
        "    from dressage.runtime.ray_workers import make_ray_workers\n"
        "except MissingExtraError as error:\n"
        "    print(error)\n"
    )
    assert run_python(code) == (
        "Workers on Ray need it. Install it with: pip install 'dressage[ray]' "
        "(in a clone: pip install -e '.[ray]')"
    )
