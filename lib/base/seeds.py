"""Randomness as a function: the same purpose and numbers give the same draw, always.

Nothing here keeps a state, so that resuming, changing the batch split or adding workers cannot change a draw.
"""

import hashlib

import numpy as np
import torch


def stream(purpose: str, *numbers: int) -> np.random.Generator:
    """A fresh generator for e.g. ``stream("depth", seed, step, row)``."""
    digest = hashlib.blake2b(repr((purpose, *map(int, numbers))).encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little")))


def torch_stream(purpose: str, *numbers: int, device: torch.device | str = "cpu") -> torch.Generator:
    """The same idea for draws that are made on a device: equal on one device type, not across types."""
    generator = torch.Generator(device=device)
    generator.manual_seed(int(stream(purpose, *numbers).integers(2**63)))
    return generator
