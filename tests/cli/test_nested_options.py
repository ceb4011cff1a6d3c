import pytest

from dressage.cli.known_algorithms import algorithm_named
from dressage.cli.nested_options import apply_settings, differences, read_config
from dressage.errors import ConfigError

NESTED = {"rsl_rl": {"algorithm": {"gamma": 0.9}, "num_steps_per_env": 8}}


@pytest.fixture
def rsl_rl():
    return algorithm_named("rsl_rl")


def test_a_setting_with_a_path_changes_one_entry_and_leaves_the_base(rsl_rl):
    found = apply_settings(rsl_rl, NESTED, {"rsl_rl.algorithm.gamma": 0.5, "num_envs": 3})
    assert found == {"rsl_rl": {"algorithm": {"gamma": 0.5}, "num_steps_per_env": 8}, "num_envs": 3}
    assert NESTED["rsl_rl"]["algorithm"]["gamma"] == 0.9


def test_an_entry_that_a_class_has_may_be_new(rsl_rl):
    found = apply_settings(rsl_rl, NESTED, {"rsl_rl.algorithm.lam": 0.5})
    assert found["rsl_rl"]["algorithm"] == {"gamma": 0.9, "lam": 0.5}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rsl_rl.algoritm.gamma", "rsl_rl has no entry 'algoritm'. Did you mean 'algorithm'"),
        ("rsl_rl.num_step_per_env", "rsl_rl has no entry 'num_step_per_env'. Did you mean"),
        ("rsl_rl.algorithm.gamma.x", "rsl_rl.algorithm.gamma holds 0.9 and no entries"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(rsl_rl, name, text):
    with pytest.raises(ConfigError, match=text):
        apply_settings(rsl_rl, NESTED, {name: 1})


def test_differences_of_mappings_have_dots():
    options = {"steps": 5, "nested": {"a": 1, "b": {"c": 2}}}
    defaults = {"steps": 5, "nested": {"a": 1, "b": {"c": 3}, "d": 4}}
    assert differences(options, defaults) == {"nested.b.c": 2, "nested.d": None}


def test_a_file_fills_the_option_that_the_algorithm_names(rsl_rl, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("num_steps_per_env: 24\n")
    assert read_config(path, rsl_rl) == {"rsl_rl": {"num_steps_per_env": 24}}
    assert read_config(None, rsl_rl) == {}


def test_what_config_prints_is_a_file_of_all_options(rsl_rl, tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("num_envs: 8\nrsl_rl: {num_steps_per_env: 24}\n")
    assert read_config(path, rsl_rl) == {"num_envs": 8, "rsl_rl": {"num_steps_per_env": 24}}
    path.write_text("num_env: 8\nrsl_rl: {num_steps_per_env: 24}\n")
    with pytest.raises(ConfigError, match=r"has no option 'num_env'. Did you mean 'num_envs'"):
        read_config(path, rsl_rl)


def test_a_file_holds_the_options_of_other_algorithms(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("LR: 0.001\n")
    assert read_config(path, algorithm_named("ppo")) == {"LR": 0.001}
    path.write_text("LRR: 0.001\n")
    with pytest.raises(ConfigError, match=r"config.yaml: PPO has no option 'LRR'. Did you mean 'LR'"):
        read_config(path, algorithm_named("ppo"))


@pytest.mark.parametrize(
    ("content", "text"), [("a: [", "is no YAML"), ("- 1", "must hold a mapping from names to values")]
)
def test_a_file_that_holds_no_mapping_is_refused(rsl_rl, tmp_path, content, text):
    path = tmp_path / "config.yaml"
    path.write_text(content)
    with pytest.raises(ConfigError, match=text):
        read_config(path, rsl_rl)


def test_a_missing_file_is_named(rsl_rl, tmp_path):
    with pytest.raises(ConfigError, match="--config: there is no file .*none.yaml"):
        read_config(tmp_path / "none.yaml", rsl_rl)
