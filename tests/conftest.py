"""Settings that all tests share. They stand before anything that could import JAX or Matplotlib."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["MPLBACKEND"] = "Agg"

from hypothesis import settings

# Compiling makes first examples slow, so there is no deadline; the same examples each time keep a
# failure repeatable. To search further: pytest --hypothesis-profile=explore
settings.register_profile("repeatable", deadline=None, derandomize=True, database=None)
settings.register_profile("explore", deadline=None, max_examples=2000)
settings.load_profile("repeatable")
