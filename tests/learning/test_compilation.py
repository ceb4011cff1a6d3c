"""Options of XLA for programs on a CPU."""

import jax
import numpy as np

from dressage.learning.compilation import compiler_options


def test_the_options_are_known_to_this_jax_and_leave_the_numbers_of_a_product_alone():
    function = lambda x: x @ x  # noqa: E731
    numbers = np.arange(16.0, dtype=np.float32).reshape(4, 4)
    result = jax.jit(function, compiler_options=compiler_options())(numbers)
    np.testing.assert_array_equal(result, numbers @ numbers)


def test_no_option_of_a_cpu_is_given_to_another_backend(monkeypatch):
    assert compiler_options()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert compiler_options() is None


def test_changing_what_was_returned_changes_no_later_answer():
    given = compiler_options()
    given.clear()
    assert compiler_options()
