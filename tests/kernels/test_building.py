"""The kernels are compiled once a machine, and everything works where they cannot be."""

import stat
import subprocess
import sys

import pytest

from dressage.kernels import building, kernels


@pytest.fixture
def anew(monkeypatch, tmp_path):
    """An empty cache of the user's, and kernels that are asked for again; returns the cache's folder."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv(building.KERNELS_VARIABLE, raising=False)
    monkeypatch.delenv("CXX", raising=False)
    kernels.cache_clear()
    yield tmp_path / "cache" / "dressage" / "kernels"
    kernels.cache_clear()


def a_compiler(folder, body):
    """Write a program that stands for a compiler; returns its path."""
    folder.mkdir(exist_ok=True)
    path = folder / "c++"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_they_can_be_turned_off(anew, monkeypatch):
    monkeypatch.setenv(building.KERNELS_VARIABLE, "off")
    found = kernels()
    assert found.library is None
    assert "DRESSAGE_KERNELS" in found.about
    assert not anew.exists()


def test_without_a_compiler_it_says_what_to_install(anew, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    found = kernels()
    assert found.library is None
    assert "install" in found.about
    assert "c++, g++, clang++" in found.about


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(anew, monkeypatch, tmp_path):
    compiler = a_compiler(tmp_path / "bin", 'echo "kernels.cc:1: fatal error: no such thing" >&2; exit 1')
    monkeypatch.setenv("CXX", compiler)
    found = kernels()
    assert found.library is None
    assert "fatal error: no such thing" in found.about
    assert compiler in found.about
    assert list(anew.iterdir()) == []


def test_a_compiler_may_be_called_with_words_of_its_own(anew, monkeypatch, tmp_path):
    monkeypatch.setenv("CXX", f"{a_compiler(tmp_path / 'bin', 'echo none >&2; exit 1')} -one two")
    assert building._compiler()[1:] == ("-one", "two")
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert building._compiler() is None or building._compiler()[0] != "no-such-compiler"


def test_a_machine_without_a_home_does_without(anew, monkeypatch):
    def no_home():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setattr("pathlib.Path.home", no_home)
    found = kernels()
    assert found.library is None
    assert "home" in found.about


def test_what_no_loader_takes_is_no_kernel(anew, monkeypatch, tmp_path):
    body = 'while [ $# -gt 1 ]; do [ "$1" = -o ] && echo nonsense > "$2"; shift; done; exit 0'
    monkeypatch.setenv("CXX", a_compiler(tmp_path / "bin", body))
    found = kernels()
    assert found.library is None
    assert "could not make them" in found.about


def test_a_second_process_finds_what_the_first_compiled(anew, monkeypatch, tmp_path):
    calls = tmp_path / "calls"
    # Says its version to whoever asks, else notes that it was called.
    body = f'case "$*" in *--version*) echo 1;; *) echo x >> {calls}; exit 1;; esac'
    monkeypatch.setenv("CXX", a_compiler(tmp_path / "bin", body))
    name = f"kernels-{building._fingerprint(building._compiler())}.so"
    anew.mkdir(parents=True)
    (anew / name).write_bytes(b"compiled before")
    assert str(anew / name) in kernels().about  # which no loader takes, but it was found
    assert not calls.exists()


def test_another_compiler_or_source_is_another_library(anew, monkeypatch, tmp_path):
    before = building._fingerprint((a_compiler(tmp_path / "one", "echo 1"),))
    after = building._fingerprint((a_compiler(tmp_path / "two", "echo 2"),))
    assert before != after


@pytest.mark.skipif(kernels().library is None, reason="no kernels here")
def test_a_cache_that_cannot_be_written_is_done_without(anew, monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("a file where the folder should be")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(building.tempfile, "tempdir", None)
    found = kernels()
    assert found.library is not None
    assert "for this process alone" in found.about
    assert not list(tmp_path.glob("dressage-kernels-*"))


TRAIN = """
from dressage import envs, ppo
sizes = {"TOTAL_TIMESTEPS": 256, "NUM_ENVS": 4, "NUM_STEPS": 32, "NUM_MINIBATCHES": 2}
config = ppo.Config(VERBOSE=False, NUM_EVAL_ENVS=0, **sizes)
from dressage.kernels import kernels
import jax
result = ppo.train(envs.make("cartpole"), config, jax.random.key(0))
total = sum(abs(leaf).sum() for leaf in jax.tree.leaves(result.policy.model))
print(kernels().library is None, float(total))
"""


@pytest.mark.skipif(kernels().library is None, reason="no kernels here")
def test_training_without_them_gives_the_same_to_rounding(monkeypatch):
    told = []
    for wish in ("on", "off"):
        monkeypatch.setenv(building.KERNELS_VARIABLE, wish)
        done = subprocess.run([sys.executable, "-c", TRAIN], check=True, capture_output=True, text=True)
        told.append(done.stdout.split())
    assert [without for without, _ in told] == ["False", "True"]
    assert float(told[0][1]) == pytest.approx(float(told[1][1]), rel=1e-5)
