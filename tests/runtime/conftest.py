"""One thread for torch's small products: more of them only wait for one another."""

from importlib.util import find_spec

if find_spec("torch") is not None:
    import torch

    torch.set_num_threads(1)
