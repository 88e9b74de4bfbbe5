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


def _affine(image: Image.Image, matrix: tuple[float, ...]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR, fillcolor=GREY)


def _rotate(image: Image.Image, strength: float, sign: int) -> Image.Image:
    return image.rotate(sign * 30 * strength, Image.Resampling.BILINEAR, fillcolor=GREY)


def _shear_x(image: Image.Image, strength: float, sign: int) -> Image.Image:
    return _affine(image, (1, sign * 0.3 * strength, 0, 0, 1, 0))


def _shear_y(image: Image.Image, strength: float, sign: int) -> Image.Image:
    return _affine(image, (1, 0, 0, sign * 0.3 * strength, 1, 0))


def _move_x(image: Image.Image, strength: float, sign: int) -> Image.Image:
    return _affine(image, (1, 0, sign * 0.3 * strength * image.width, 0, 1, 0))


def _move_y(image: Image.Image, strength: float, sign: int) -> Image.Image:
    return _affine(image, (1, 0, 0, 0, 1, sign * 0.3 * strength * image.height))


def _posterize(image: Image.Image, strength: float, sign: int) -> Image.Image:
    return ImageOps.posterize(image, 8 - round(4 * strength))


def _solarize(image: Image.Image, strength: float, sign: int) -> Image.Image:
    return ImageOps.solarize(image, 256 - round(256 * strength))


OPERATIONS: dict[str, Operation] = {
    "autocontrast": lambda image, strength, sign: ImageOps.autocontrast(image),
    "equalize": lambda image, strength, sign: ImageOps.equalize(image),
    "rotate": _rotate,
    "shear_x": _shear_x,
    "shear_y": _shear_y,
    "move_x": _move_x,
    "move_y": _move_y,
    "posterize": _posterize,
    "solarize": _solarize,
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
