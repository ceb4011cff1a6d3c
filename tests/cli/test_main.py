"""The command line as a whole: quick help, exit codes, and readable errors."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

import dressage
from dressage.cli.main import app

VERBS = ("train", "evaluate", "plot", "play", "report", "tasks", "algorithms", "config", "doctor")


def run(*words):
    return CliRunner().invoke(app, list(words))


def test_help_lists_every_verb():
    shown = run("--help")
    assert shown.exit_code == 0
    assert all(f" {verb} " in shown.output for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb):
    shown = run(verb, "--help")
    assert shown.exit_code == 0
    assert f"dressage {verb}" in shown.output or f"root {verb}" in shown.output


def test_help_loads_no_framework():
    code = (
        "import sys\nfrom dressage.cli.main import app\n"
        "from typer.testing import CliRunner\n"
        "assert CliRunner().invoke(app, ['train', '--help']).exit_code == 0\n"
        "print(sorted({'jax', 'numpy', 'flax', 'matplotlib', 'gymnasium'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_version_is_shown():
    shown = run("--version")
    assert (shown.exit_code, shown.output) == (0, f"dressage {dressage.__version__}\n")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("train",), "Which task? For example: dressage train pendulum."),
        (("train", "--resume-from", "8"), "--resume needs the run to go on with"),
        (("train", "--resume"), "--resume needs the run to go on with"),
        (
            ("train", "pendulum", "--resume", "--run", "x"),
            "A resumed run keeps its task and options: leave out TASK",
        ),
        (("train", "--resume", "--run", "x", "--set", "LR=1", "--steps", "5"), "leave out --steps, --set"),
        (("train", "pendulum", "--set", "LR"), "--set takes KEY=VALUE, for example --set LR=3e-4; got 'LR'."),
        (("train", "pendulum", "--set", "LR="), "--set LR= gives no value; write it behind the equals sign."),
        (("train", "pendulum", "--set", "LR=1e-3", "--set", "LR=1e-4"), "--set gives LR twice."),
        (("train", "pendulum", "--set", "LR=[1"), "'[1' is no YAML value."),
        (("train", "pendulum", "--set", "GAMA=0.9"), "PPO has no option 'GAMA'. Did you mean 'GAMMA'?"),
        (("train", "pendulum", "--set", "GAMMA=1.2"), "PPO option 'GAMMA' must be"),
        (("train", "pendulum", "--steps", "9", "--set", "TOTAL_TIMESTEPS=9"), "say the same thing"),
        (("train", "pendulum", "--algorithm", "dqn"), "There is no algorithm 'dqn'. Known: "),
        (("train", "pendulum", "--algorithm", "pppo"), "no algorithm 'pppo'. Did you mean 'ppo'?"),
        (
            ("train", "pendulum", "--algorithm", "rsl_rl"),
            "one agent; rsl_rl trains tasks of one agent in torch.",
        ),
        (("train", "safe_spread", "--algorithm", "ppo"), "several agents; ppo trains tasks of one agent."),
        (("train", "pendulm"), "pendulum"),
        (("report", "no/such/run"), "no/such/run is not a run directory: it has no config.json."),
        (("evaluate", "no/such/run"), "no/such/run is not a run directory"),
        (("plot", "no/such/run"), "no/such/run is not a run directory"),
        (("play", "no/such/run"), "no/such/run is not a run directory"),
        (("train", "--run", "no/such/run", "--resume"), "no/such/run is not a run directory"),
        (("config", "--json", "--yaml"), "exclude each other"),
        (("config", "--task", "pendulm"), "Did you mean 'pendulum'?"),
        (
            ("train", "pendulum", "--wandb", "project"),
            "needs the package wandb. Install it with: pip install",
        ),
        (("train", "pendulum", "--run", "/proc/x"), "The run cannot be written to /proc/x: No such file"),
        (("train", "gymnasium:nowhere:Some-v0"), "names a module that cannot be imported"),
    ],
)
def test_a_mistake_is_told_in_a_sentence_and_ends_with_2(words, complaint, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shown = run(*words)
    assert shown.exit_code == 2
    assert complaint in " ".join(shown.stderr.split())
    assert "Traceback" not in shown.output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words",
    [
        ("tarin",),
        ("train", "--stepz", "5"),
        ("train", "pendulum", "--steps", "0"),
        ("train", "pendulum", "--steps", "1.5"),
        ("evaluate", "run", "--episodes", "many"),
    ],
)
def test_words_that_the_parser_refuses_end_with_2(words):
    shown = run(*words)
    assert shown.exit_code == 2
    assert "Traceback" not in shown.output
