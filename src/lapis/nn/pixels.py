"""Convert the bytes of images to the normalised floats that training uses; deployed networks take bytes."""

from __future__ import annotations

import torch
from torch import Tensor

from lapis.preprocess import Preprocess


def normalise(pixels: Tensor, preprocess: Preprocess) -> Tensor:
    """(pixel / 255 - mean) / std: bytes (n, height, width, 3) -> float32 (n, 3, height, width)."""
    mean, std = (_by_channel(values, pixels) for values in (preprocess.mean, preprocess.std))
    images = pixels.permute(0, 3, 1, 2).float()
    return images.mul_(1 / (255 * std)).add_(-mean / std).contiguous()


def renormalise(images: Tensor, old: Preprocess, new: Preprocess) -> Tensor:
    """Change normalised images from one rule to another."""
    if (old.mean, old.std) == (new.mean, new.std):
        return images
    old_mean, old_std, new_mean, new_std = (
        _by_channel(values, images) for values in (old.mean, old.std, new.mean, new.std)
    )
    return images * (old_std / new_std) + (old_mean - new_mean) / new_std


def _by_channel(values: tuple[float, float, float], like: Tensor) -> Tensor:
    return torch.tensor(values, device=like.device).view(3, 1, 1)
