"""Policy distributions: categorical, factored categorical, Gaussian, squashed Gaussian and augmented actions.

Each is a frozen pytree, so that it passes through `jit`, `vmap` and `scan`. Sampling is split in two for the
inner loops: `draw_noise` draws the noise of any number of steps at once, `sample_from` turns it into actions
without a key. `draw_noise` reads only shapes, so a distribution made by `jax.eval_shape` serves it too.
"""

from dressage.equations.distributions.augmented import AugmentedAction
from dressage.equations.distributions.base import Distribution
from dressage.equations.distributions.categorical import MASKED, Categorical, FactoredCategorical
from dressage.equations.distributions.gaussian import (
    LOG_STD_MAX,
    LOG_STD_MIN,
    SATURATION,
    DiagGaussian,
    SquashedGaussian,
)

__all__ = [
    "LOG_STD_MAX",
    "LOG_STD_MIN",
    "MASKED",
    "SATURATION",
    "AugmentedAction",
    "Categorical",
    "DiagGaussian",
    "Distribution",
    "FactoredCategorical",
    "SquashedGaussian",
]
