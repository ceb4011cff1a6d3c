"""Two Ray nodes, each with one CPU, on this machine: a run of two workers needs both."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dressage.runtime.ray_address import check_head

pytest.importorskip("ray")

RUN = """
import sys, time
import ray
from dressage.runtime import Engine, RuntimeConfig
from tests.runtime.toys import spec

if __name__ == "__main__":
    deadline = time.monotonic() + 120
    while not ray.is_initialized():
        try:
            ray.init(address=sys.argv[1], log_to_driver=False)
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(1)
    while sum(node["Alive"] for node in ray.nodes()) < 2 and time.monotonic() < deadline:
        time.sleep(0.5)
    with Engine(spec(), RuntimeConfig(workers=2, address=sys.argv[1])) as engine:
        print([node["Resources"]["CPU"] for node in ray.nodes()], engine.run(3).updates)
"""


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def two_nodes():
    """The address of a head of one CPU that another node of one CPU joins; both end with the test."""
    address = f"127.0.0.1:{free_port()}"
    # A cluster of this machine alone, for a minute: nobody else is to be kept out by a token.
    environment = {**os.environ, "RAY_AUTH_MODE": "disabled"}
    start = [str(Path(sys.executable).with_name("ray")), "start", "--num-cpus", "1", "--block"]
    start += ["--disable-usage-stats"]
    roles = [["--head", "--port", address.rpartition(":")[2], "--include-dashboard", "false"]]
    roles += [["--address", address]]
    nodes = []
    for role in roles:
        nodes.append(subprocess.Popen([*start, *role], env=environment, stdout=subprocess.DEVNULL))
        time.sleep(5)  # what joins a head that is not there yet gives up
    yield address, environment
    for node in reversed(nodes):
        node.terminate()
    for node in nodes:
        node.wait(90)


@pytest.mark.slow
def test_a_run_is_spread_over_two_nodes(tmp_path, two_nodes):
    address, environment = two_nodes
    script = tmp_path / "run.py"
    script.write_text(RUN)
    paths = os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])
    finished = subprocess.run(
        [sys.executable, str(script), address],
        env={**environment, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.strip() == "[1.0, 1.0] 3"
    check_head(address, 60.0)  # A real one is known as one.
