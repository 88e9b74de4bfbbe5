"""RandAugment on pixels, with Pillow: n operations drawn at random, all at one magnitude of 0..10."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from lapis.preprocess import Pixels

MOST = 10.0
GREY = (124, 116, 104)

# An operation takes the image, a strength of 0..1 and a sign of -1 or 1.
Operation = Callable[[Image.Image, float, int], Image.Image]


def _enhance(kind: Callable[[Image.Image], ImageEnhance._Enhance]) -> Operation:
    return lambda image, strength, sign: kind(image).enhance(1 + sign * 0.9 * strength)


def _affine(matrix: Callable[[Image.Image, float], tuple[float, ...]]) -> Operation:
    """A transform whose matrix takes the image and an amount of -0.3..0.3."""

    def transform(image: Image.Image, strength: float, sign: int) -> Image.Image:
        moved = matrix(image, sign * 0.3 * strength)
        return image.transform(image.size, Image.Transform.AFFINE, moved, Image.Resampling.BILINEAR, fillcolor=GREY)

    return transform


def _rotate(image: Image.Image, strength: float, sign: int) -> Image.Image:
    return image.rotate(sign * 30 * strength, Image.Resampling.BILINEAR, fillcolor=GREY)


OPERATIONS: dict[str, Operation] = {
    "autocontrast": lambda image, strength, sign: ImageOps.autocontrast(image),
    "equalize": lambda image, strength, sign: ImageOps.equalize(image),
    "rotate": _rotate,
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


def rand_augment(pixels: Pixels, count: int, magnitude: float, generator: np.random.Generator) -> Pixels:
    """`count` operations one after the other; the size stays."""
    image = Image.fromarray(pixels)
    operations = list(OPERATIONS.values())
    for _ in range(count):
        operation = operations[int(generator.integers(len(operations)))]
        sign = 1 if generator.uniform() < 0.5 else -1
        image = operation(image, magnitude / MOST, sign)
    return np.asarray(image)
