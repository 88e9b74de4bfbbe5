"""Write the packaged training sample of CIFAR-10: the first 32 training images of each class, as one lossless picture.

python tools/cifar_train_sample.py DIR, with CIFAR-10's binary files in DIR. The recipe `smoke` trains on it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from lapis.data.cifar import SIDE
from lapis.data.open import open_images
from lapis.data.packaged import TILES

PER_CLASS = 32
ASSETS = Path(__file__).parents[1] / "src" / "lapis" / "assets"


def main(folder: str) -> None:
    images = open_images(Path(folder), "train", "cifar10")
    chosen = np.sort(np.concatenate([np.flatnonzero(images.labels == label)[:PER_CLASS] for label in range(10)]))
    pixels = np.stack([images[int(index)] for index in chosen])
    tiles = pixels.reshape(-1, TILES, SIDE, SIDE, 3).swapaxes(1, 2).reshape(-1, TILES * SIDE, 3)
    Image.fromarray(tiles).save(ASSETS / "cifar10_train_sample.webp", lossless=True, quality=100, method=6, exact=True)
    digits = "".join(str(label) for label in images.labels[chosen])
    (ASSETS / "cifar10_train_sample.labels").write_text(digits + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
