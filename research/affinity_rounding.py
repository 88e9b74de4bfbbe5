"""Compare ways to round narrow affinities: the share of images that the packaged model answers as with 15 bits.

python research/affinity_rounding.py DIR        # a folder with CIFAR-10
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from lapis import models
from lapis.config import AFFINITY_BITS
from lapis.data.images import spread
from lapis.data.open import open_images
from lapis.deploy import leak
from lapis.runtime.engine import Engine

IMAGES, BATCH = 400, 50
WIDTHS = (8, 5, 4, 3, 2, 1)
# An affinity below one is rounded up from here on, where the geometric mean decides.
ROOT_HALF = 0.5**0.5
Read = Callable[..., Any]
nearest: Read = leak.read


def units(u: Any, e: Any, gain: Any, bits: int) -> Any:
    """The affinity before rounding, in units of the table."""
    return u / np.exp2(np.clip(e.astype(np.int64) - gain + leak.MANTISSA_BITS - bits, 1, leak.MAX_SHIFT))


def down(u: Any, e: Any, gain: Any, bits: int) -> Any:
    return np.minimum(np.floor(units(u, e, gain, bits)), (1 << bits) - 1).astype(np.int64)


def at_least_one(u: Any, e: Any, gain: Any, bits: int) -> Any:
    return np.maximum(nearest(u, e, gain, bits), 1)


def late_one(u: Any, e: Any, gain: Any, bits: int) -> Any:
    return np.where(units(u, e, gain, bits) < ROOT_HALF, 0, nearest(u, e, gain, bits))


ROUNDINGS: dict[str, Read] = {
    "to the nearest": nearest,
    "down": down,
    "to the nearest, but at least 1": at_least_one,
    "to the nearest, but to 1 only from 0.71 on": late_one,
}


def answers(pixels: Any, bits: int, read: Read) -> Any:
    """The classes of all images, with affinities read in this way."""
    network = models.load("lapis_tiny.cifar10_dense").network
    network = dataclasses.replace(network, config=network.config.replace(affinity_bits=bits))
    with mock.patch.object(leak, "read", read):
        engine = Engine(network)
    found = [engine.run(pixels[start : start + BATCH]).argmax(axis=1) for start in range(0, len(pixels), BATCH)]
    engine.close()
    return np.concatenate(found)


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare ways to round narrow affinities.")
    parser.add_argument("data", type=Path, help="Folder with CIFAR-10.")
    images = spread(open_images(parser.parse_args().data, "test"), IMAGES)
    preprocess = models.load("lapis_tiny.cifar10_dense").preprocess
    pixels = np.stack([preprocess.resize(images[index]) for index in range(len(images))])
    wide = answers(pixels, AFFINITY_BITS, nearest)
    print("bits", *WIDTHS)
    for name, read in ROUNDINGS.items():
        print(name, *(f"{(answers(pixels, bits, read) == wide).mean():.3f}" for bits in WIDTHS), flush=True)


if __name__ == "__main__":
    main()
