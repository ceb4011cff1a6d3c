"""Tasks by name: what is known is made, what is not is refused with the nearest name."""

import inspect
import sys

import pytest

from dressage import envs
from dressage.envs import PREFIXES, BaseEnv, MultiAgentEnv, make, tasks
from dressage.envs.registry import agent_kind, shipped_task
from dressage.errors import ConfigError


@pytest.mark.parametrize("name", tasks())
def test_every_shipped_task_is_made_with_its_declared_defaults(name):
    env = make(name)
    task = shipped_task(name)
    declared = {option.name: option.default for option in task.options}
    taken = inspect.signature(task.build).parameters
    assert isinstance(env, BaseEnv | MultiAgentEnv)
    assert {parameter.name: parameter.default for parameter in taken.values()} == declared
    made = make(name, **declared)
    if isinstance(task.build, type):
        assert vars(env) == declared == vars(made)


def test_the_names_of_the_suite_and_the_prefixes_are_listed():
    assert tasks() == (
        "budget_bandit",
        "cartpole",
        "corridor",
        "coupled_budget",
        "crossing",
        "pendulum",
        "platoon",
        "risk_ladder",
        "safe_spread",
        "shielded_crossing",
        "shielded_platoon",
        "shielded_risk_ladder",
        "shielded_shortcut_cmdp",
        "shortcut_cmdp",
    )
    host = {"gymnasium", "lbforaging", "pettingzoo", "rware"}
    assert set(PREFIXES) == {"brax", "gymnax", "jaxmarl", "python", *host}


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("pendulu", "There is no task 'pendulu'. Did you mean 'pendulum'"),
        ("CartPole", "Did you mean 'cartpole'"),
        ("gymnasum:CartPole-v1", "Did you mean 'gymnasium:CartPole-v1'"),
        (
            "zzz",
            "There is no task 'zzz'. Tasks: budget_bandit, cartpole, .*, or brax:…, gymnasium:…, gymnax:…",
        ),
        (
            "gymnax:",
            "gymnax: needs a name behind the colon, for example gymnax:Catch-bsuite, gymnax:Acrobot-v1",
        ),
        ("gymnasium: ", "gymnasium: needs a name behind the colon, for example gymnasium:Acrobot-v1"),
        ("pettingzoo", "There is no task 'pettingzoo'. pettingzoo: needs a name behind the colon"),
        ("gymnasum:", "There is no task 'gymnasum:'. Did you mean 'gymnasium:Acrobot-v1'"),
        ("gymnasum", "There is no task 'gymnasum'. Did you mean 'gymnasium:Acrobot-v1'"),
        ("gymnasium:Cart Pole", "gymnasium cannot make 'Cart Pole': Malformed environment ID"),
        ("", "There is no task ''."),
        ("gymnax:Cartpole-v1", "gymnax has no environment 'Cartpole-v1'. Did you mean 'CartPole-v1'"),
        ("gymnasium:CartPol-v1", "gymnasium has no environment 'CartPol-v1': .*CartPole"),
        ("python:math", "python:math must read python:module:function"),
        ("python:math:sine", "the module 'math' has no function 'sine'. Did you mean 'sin'"),
        ("python:math:pi", "the module 'math' has no function 'pi'"),
        ("python:no_such_module:f", "importing 'no_such_module' failed with ModuleNotFoundError: No module"),
        (
            "python:builtins:dict",
            "python:builtins:dict must return a dressage.envs.BaseEnv or MultiAgentEnv, got dict",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_what_is_near(name, match):
    with pytest.raises(ConfigError, match=match):
        make(name)


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("pendulum", {"gravty": 1}, "pendulum has no option 'gravty'. Did you mean 'gravity'"),
        ("pendulum", {"gravity": -1.0}, "pendulum option 'gravity' must be a finite number >= 0, got -1.0"),
        ("safe_spread", {"num_agent": 2}, "safe_spread has no option 'num_agent'. Did you mean 'num_agents'"),
        ("safe_spread", {"local_ratio": 2}, "'local_ratio' must be a finite number >= 0 and <= 1, got 2"),
        ("cartpole", {"max_steps": 2.5}, "cartpole option 'max_steps' must be an integer >= 1, got 2.5"),
        (
            "gymnax:CartPole-v1",
            {"gravty": 1},
            "gymnax:CartPole-v1 has no option 'gravty'. Did you mean 'gravity'",
        ),
        ("gymnasium:CartPole-v1", {"gravty": 1}, r"gymnasium:CartPole-v1 refuses the options \['gravty'\]"),
        ("brax:fast", {"max_step": 1}, "brax:fast has no option 'max_step'. Did you mean 'max_steps'"),
        ("python:math:sin", {"x": 1, "y": 2}, r"python:math:sin does not take the options \['x', 'y'\]"),
    ],
)
def test_a_wrong_option_is_refused_by_name(name, options, match):
    with pytest.raises(ConfigError, match=match):
        make(name, **options)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cartpole", "single"),
        ("gymnasium:CartPole-v1", "single"),
        ("safe_spread", "multi"),
        ("pettingzoo:mpe2.simple_spread_v3", "multi"),
    ],
)
def test_a_task_tells_whether_it_has_one_agent_or_several(name, kind):
    assert agent_kind(make(name)) == kind


OWN = """
from dressage.envs import make
def task(max_steps=7):
    return make("pendulum", max_steps=max_steps)
"""


def test_a_users_own_function_is_called_with_the_options(tmp_path, monkeypatch):
    (tmp_path / "own_task_of_a_user.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert make("python:own_task_of_a_user:task").max_steps == 7
    assert make("python:own_task_of_a_user:task", max_steps=9).max_steps == 9


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("import no_such_module\n", "failed with ModuleNotFoundError: No module named 'no_such_module'"),
        ("def task(:\n", "failed with SyntaxError: invalid syntax"),
    ],
)
def test_a_module_that_cannot_be_imported_says_what_failed(text, match, tmp_path, monkeypatch):
    name = f"broken_task_{len(text)}"
    (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=match):
        make(f"python:{name}:task")


@pytest.mark.parametrize("name", envs.__all__)
def test_every_public_name_exists_and_says_what_it_is(name):
    assert getattr(envs, name).__doc__
