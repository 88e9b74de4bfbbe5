"""Programs of other processors and systems, run in an emulator on images whose answers are known."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from lapis import models
from lapis.data.packaged import packaged_images
from lapis.deploy import integer

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "models" / "lapis_tiny.cifar10.safetensors"
ARM, RISCV, WINE = "qemu-aarch64 -L /usr/aarch64-linux-gnu", "qemu-riscv64 -L /usr/riscv64-linux-gnu", "wine64"
# An emulated image takes up to some seconds; `make arm` and its like ask for 32.
IMAGES = int(os.environ.get("LAPIS_EMULATED_IMAGES", "2"))


def emulator(command: str) -> list[str]:
    """The command of an emulator, or a skip that says how to get it."""
    name, *options = command.split()
    # Debian keeps it out of the path.
    found = shutil.which(name) or shutil.which(name, path="/usr/lib/wine")
    if found is None:
        pytest.skip(f"no {name}: apt-get install {'wine64' if name == WINE else 'qemu-user'}")
    return [found, *options]


@cache
def expected_logits() -> npt.NDArray[np.int64]:
    """What the integer model answers to the images."""
    opened = models.load(MODEL)
    resized = [opened.preprocess.resize(image) for image in packaged_images().pixels[:IMAGES]]
    return integer.run(opened.network, np.stack(resized))


def logits_of(start: list[str], program: Path, folder: Path) -> tuple[str, npt.NDArray[np.int64]]:
    """The instruction set that a build of tools/cross/logits.c chose, and its answers to the same images."""
    images = packaged_images().pixels[:IMAGES]
    pixels = folder / "pixels"
    pixels.write_bytes(images.tobytes())
    environment = {
        "WINEDEBUG": "-all",
        "WINEPREFIX": str(folder / "wine"),
        "HOME": str(folder),
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [*start, program, MODEL, pixels, str(images.shape[1])],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    isa, *rows = done.stdout.splitlines()
    return isa, np.array([row.split() for row in rows], np.int64)
