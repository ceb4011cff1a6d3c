"""Importing optional packages: quietly, and with the extra named where one is missing."""

import sys
import types
import warnings

import pytest

from dressage.envs.adapters import brax
from dressage.envs.adapters.extras import import_extra
from dressage.errors import MissingExtraError


def test_what_a_package_prints_while_it_is_imported_stays_out_of_sight(tmp_path, monkeypatch, capsys):
    (tmp_path / "talkative_package.py").write_text("print('no warp here')\nWORD = 'warp'\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert import_extra("talkative_package", "envs").WORD == "warp"
    assert capsys.readouterr().out == ""
    del sys.modules["talkative_package"]


def test_a_missing_package_is_refused_with_the_extra_that_brings_it():
    with pytest.raises(MissingExtraError, match=r"no_such_package cannot .*pip install 'dressage\[envs\]'"):
        import_extra("no_such_package.part", "envs")


def test_braxs_recommendation_of_its_successor_is_not_passed_on():
    def recommend(name):
        warnings.warn(
            "Brax System, piplines and environments are not actively being maintained.", stacklevel=2
        )
        return types.SimpleNamespace(name=name)

    envs = types.SimpleNamespace(_envs={"ant": None}, get_environment=recommend)
    assert brax._named(envs, "ant", None).name == "ant"
