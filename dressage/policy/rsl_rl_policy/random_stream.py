"""Owns reading and setting torch's random stream, the one that rsl_rl draws from."""

import numpy as np
import torch

from dressage.errors import RolloutError


def read(device: str) -> np.ndarray:
    """Return the state of torch's streams of the CPU and, where one is in use, of the CUDA device; bytes."""
    state = torch.get_rng_state()
    if _is_cuda(device):
        state = torch.cat([state, torch.cuda.get_rng_state(device)])
    array: np.ndarray = state.numpy().copy()
    return array


def load(state: np.ndarray, device: str) -> None:
    """Go on from what `read` returned on a device of the same kind.

    Raises:
        RolloutError: If the state is of another length.
    """
    tensor = torch.from_numpy(np.array(state, dtype=np.uint8))
    wanted = len(read(device))
    if len(tensor) != wanted:
        raise RolloutError(f"A random state of {device} has {wanted} bytes, got {len(tensor)}.")
    on_cpu = len(torch.get_rng_state())
    torch.set_rng_state(tensor[:on_cpu])
    if _is_cuda(device):
        torch.cuda.set_rng_state(tensor[on_cpu:], device)


def forked_devices(device: str) -> list[torch.device]:
    """Return the devices whose stream must be set aside besides the CPU's."""
    return [torch.device(device)] if _is_cuda(device) else []


def _is_cuda(device: str) -> bool:
    return torch.device(device).type == "cuda"
