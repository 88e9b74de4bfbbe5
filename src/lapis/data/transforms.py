"""Transforms of training images: crops, mirroring, RandAugment, mixing and erased boxes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from lapis.preprocess import Pixels


def random_resized_crop(
    pixels: Pixels, size: int, smallest: float, generator: np.random.Generator, tries: int = 10
) -> Pixels:
    """A box of a random area (`smallest`..1) and shape (3/4..4/3), resized to a square of `size`."""
    height, width = pixels.shape[:2]
    for _ in range(tries):
        area = height * width * generator.uniform(smallest, 1.0)
        shape = math.exp(generator.uniform(math.log(3 / 4), math.log(4 / 3)))
        box_width, box_height = round(math.sqrt(area * shape)), round(math.sqrt(area / shape))
        if 0 < box_width <= width and 0 < box_height <= height:
            break
    else:
        box_width = box_height = min(height, width)
    top = int(generator.integers(height - box_height + 1))
    left = int(generator.integers(width - box_width + 1))
    box = (left, top, left + box_width, top + box_height)
    return np.asarray(Image.fromarray(pixels).resize((size, size), Image.Resampling.BICUBIC, box=box))


def shifted_crops(pixels: Pixels, tops: npt.NDArray[np.int64], lefts: npt.NDArray[np.int64], padding: int) -> Pixels:
    """Each image padded by its mirrored border, cut back to its size at (top, left) in 0..2*padding."""
    height, width = pixels.shape[1:3]
    edges = ((0, 0), (padding, padding), (padding, padding), (0, 0))
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(pixels, edges, "reflect"), (height, width), axis=(1, 2))
    crops: Pixels = windows[np.arange(len(pixels)), tops, lefts].transpose(0, 2, 3, 1)
    return crops


def flipped(pixels: Pixels, which: npt.NDArray[np.bool_]) -> Pixels:
    """The chosen images mirrored left to right."""
    return np.where(which[:, None, None, None], pixels[:, :, ::-1], pixels)


@dataclass(frozen=True)
class Mix:
    """Two images of a batch blended: pixel-wise by `share` (mixup), or the second pasted into a box (cutmix)."""

    share: float
    box: tuple[int, int, int, int] | None = None


def draw_mix(generator: np.random.Generator, probability: float, mixup: float, cutmix: float, size: int) -> Mix | None:
    """Draw the mix of one batch, with `probability`, among the kinds with a positive alpha; else None."""
    kinds = [kind for kind, alpha in (("mixup", mixup), ("cutmix", cutmix)) if alpha > 0]
    # Always three draws, so that later draws do not depend on the outcome.
    chance, which, place = generator.uniform(), generator.uniform(), generator.uniform(size=2)
    if not kinds or chance >= probability:
        return None
    kind = kinds[int(which * len(kinds))]
    share = float(generator.beta(*((mixup if kind == "mixup" else cutmix,) * 2)))
    if kind == "mixup":
        return Mix(share)
    half = size * math.sqrt(1 - share) / 2
    row, column = (place * size).tolist()
    top, bottom = round(max(0, row - half)), round(min(size, row + half))
    left, right = round(max(0, column - half)), round(min(size, column + half))
    return Mix(1 - (bottom - top) * (right - left) / size**2, (top, bottom, left, right))


def mix_images(images: Tensor, mix: Mix) -> Tensor:
    """Mix image i with image i + n/2 (mod n); the batch is already in random order."""
    partners = images.roll(len(images) // 2, 0)
    if mix.box is None:
        return images * mix.share + partners * (1 - mix.share)
    top, bottom, left, right = mix.box
    mixed = images.clone()
    mixed[:, :, top:bottom, left:right] = partners[:, :, top:bottom, left:right]
    return mixed


def soft_targets(labels: Tensor, classes: int, smoothing: float, mix: Mix | None) -> Tensor:
    """One-hot rows, smoothed by `smoothing / classes`, mixed as the images were."""
    rows = torch.full((len(labels), classes), smoothing / classes)
    rows.scatter_(1, labels[:, None], 1 - smoothing + smoothing / classes)
    return rows if mix is None else rows * mix.share + rows.roll(len(rows) // 2, 0) * (1 - mix.share)


def erase(images: Tensor, generators: list[np.random.Generator], probability: float) -> Tensor:
    """Random erasing: a box of 2 to 33 % of the image set to the mean (zero after normalising), in place."""
    height, width = images.shape[-2:]
    for image, generator in zip(images, generators, strict=True):
        if generator.uniform() >= probability:
            continue
        area = height * width * generator.uniform(0.02, 1 / 3)
        shape = math.exp(generator.uniform(math.log(0.3), math.log(1 / 0.3)))
        box_height, box_width = min(height, round(math.sqrt(area * shape))), min(width, round(math.sqrt(area / shape)))
        top, left = int(generator.integers(height - box_height + 1)), int(generator.integers(width - box_width + 1))
        image[:, top : top + box_height, left : left + box_width] = 0
    return images


BILINEAR = Image.Resampling.BILINEAR
# Of 0..1; RandAugment's magnitude is 9 of 10.
STRENGTH = 0.9
GREY = (124, 116, 104)

# An operation takes the image, a strength of 0..1 and a sign of -1 or 1.
Operation = Callable[[Image.Image, float, int], Image.Image]


def _enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    return lambda image, strength, sign: kind(image).enhance(1 + sign * 0.9 * strength)


def _affine(matrix: Callable[[Image.Image, float], tuple[float, ...]]) -> Operation:
    """A transform whose matrix takes the image and an amount of -0.3..0.3."""

    def transform(image: Image.Image, strength: float, sign: int) -> Image.Image:
        moved = matrix(image, sign * 0.3 * strength)
        return image.transform(image.size, Image.Transform.AFFINE, moved, BILINEAR, fillcolor=GREY)

    return transform


OPERATIONS: dict[str, Operation] = {
    "autocontrast": lambda image, strength, sign: ImageOps.autocontrast(image),
    "equalize": lambda image, strength, sign: ImageOps.equalize(image),
    "rotate": lambda image, strength, sign: image.rotate(
        sign * 30 * strength, Image.Resampling.BILINEAR, fillcolor=GREY
    ),
    "shear_x": _affine(lambda image, amount: (1, amount, 0, 0, 1, 0)),
    "shear_y": _affine(lambda image, amount: (1, 0, 0, amount, 1, 0)),
    "move_x": _affine(lambda image, amount: (1, 0, amount * image.width, 0, 1, 0)),
    "move_y": _affine(lambda image, amount: (1, 0, 0, 0, 1, amount * image.height)),
    "posterize": lambda image, strength, sign: ImageOps.posterize(image, 8 - round(4 * strength)),
    "solarize": lambda image, strength, sign: ImageOps.solarize(image, 256 - round(256 * strength)),
    "colour": _enhance(ImageEnhance.Color),
    "contrast": _enhance(ImageEnhance.Contrast),
    "brightness": _enhance(ImageEnhance.Brightness),
    "sharpness": _enhance(ImageEnhance.Sharpness),
}


def rand_augment(pixels: Pixels, generator: np.random.Generator, count: int) -> Pixels:
    """RandAugment: `count` operations drawn at random, one after the other; the size stays."""
    image = Image.fromarray(pixels)
    operations = list(OPERATIONS.values())
    for _ in range(count):
        operation = operations[int(generator.integers(len(operations)))]
        sign = 1 if generator.uniform() < 0.5 else -1
        image = operation(image, STRENGTH, sign)
    return np.asarray(image)
