"""Large counts as people type them."""

import pytest
import typer

from dressage.cli.counts import positive_count, read_count
from dressage.cli.run_setup import Request, new_record
from dressage.cli.single_agent_ppo import SingleAgentPPO
from dressage.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1_000_000", 1_000_000),
        ("1e6", 1_000_000),
        ("1E+6", 1_000_000),
        ("1.5e3", 1_500),
        ("1M", 1_000_000),
        ("2.5M", 2_500_000),
        ("500k", 500_000),
        ("9007199254740993", 2**53 + 1),
        ("9007199254.740993G", 9_007_199_254_740_993_000),
        (" 8 ", 8),
    ],
)
def test_a_count_is_read_exactly(text, number):
    assert read_count(text) == number


@pytest.mark.parametrize(
    "text", ["", "1.5", "1e-1", "-5", "1.2345k", "M", "_1", "1MM", "nan", "inf", "1,000", "1e999"]
)
def test_what_is_no_whole_number_is_no_count(text):
    assert read_count(text) is None
    with pytest.raises(
        typer.BadParameter, match=r"is no whole number >= 1, such as 500000, 500_000, 5e5 or 500k"
    ):
        positive_count(text)


def test_options_that_are_counts_take_suffixes_too():
    options = new_record(
        Request("pendulum", settings=["TOTAL_TIMESTEPS=2M", "NUM_ENVS=1k"]), SingleAgentPPO()
    ).options
    assert (options["TOTAL_TIMESTEPS"], options["NUM_ENVS"]) == (2_000_000, 1_000)
    with pytest.raises(ConfigError, match="'LR' must be a finite number > 0, got '1k'"):
        new_record(Request("pendulum", settings=["LR=1k"]), SingleAgentPPO())
