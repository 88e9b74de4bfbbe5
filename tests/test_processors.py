"""The library on other processors and systems, in an emulator: detection of instruction sets, and equal answers.

`make cross` builds it for all whose compiler is there. `make arm` and `make riscv` also run the other tests of the
kernels and of the engine there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from lapis.data.slice import load_slice
from lapis.deploy import integer
from lapis.models import open as open_model

ROOT = Path(__file__).resolve().parents[1]
MODEL = ROOT / "src" / "lapis" / "assets" / "lapis_tiny_cifar10.safetensors"
ARM, RISCV, WINE = "qemu-aarch64 -L /usr/aarch64-linux-gnu", "qemu-riscv64 -L /usr/riscv64-linux-gnu", "wine64"
# Who runs the program, and the instruction set that it must find on that processor. Wine's is the one of this machine.
RUNS = {
    "arm_of_2012": ("arm/logits", f"{ARM} -cpu cortex-a53", "neon"),
    "arm_with_dot_products": ("arm/logits", f"{ARM} -cpu neoverse-n1", "neondot"),
    "arm_with_matrix_products": ("arm/logits", f"{ARM} -cpu max", "neoni8mm"),
    "riscv": ("riscv/logits", RISCV, "scalar"),
    "windows": ("windows/logits.exe", WINE, None),
}
# An emulated image takes up to some seconds; `make arm` and its like ask for 32.
IMAGES = int(os.environ.get("LAPIS_EMULATED_IMAGES", "2"))


def emulator(command: str) -> list[str]:
    name, *options = command.split()
    # Debian keeps it out of the path.
    found = shutil.which(name) or shutil.which(name, path="/usr/lib/wine")
    if found is None:
        pytest.skip(f"no {name}: apt-get install {'wine64' if name == WINE else 'qemu-user'}")
    return [found, *options]


@pytest.fixture(scope="module")
def expected() -> npt.NDArray[np.int64]:
    opened = open_model(MODEL)
    resized = [opened.preprocess.resize(image) for image in load_slice().images[:IMAGES]]
    return integer.run(opened.network(), np.stack(resized))


@pytest.mark.parametrize("run", RUNS)
def test_every_processor_gives_the_logits_of_the_integer_model(
    run: str, expected: npt.NDArray[np.int64], tmp_path: Path
) -> None:
    program, command, isa = RUNS[run]
    path = ROOT / "build" / program
    start = emulator(command)
    if not path.is_file():
        pytest.skip(f"no build/{program}: make cross builds it where the compiler is")
    images = load_slice().images[:IMAGES]
    pixels = tmp_path / "pixels"
    pixels.write_bytes(images.tobytes())
    environment = {
        "WINEDEBUG": "-all",
        "WINEPREFIX": str(tmp_path / "wine"),
        "HOME": str(tmp_path),
        "PATH": "/usr/bin:/bin",
    }
    done = subprocess.run(
        [*start, path, MODEL, pixels, str(images.shape[1])],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found, *rows = done.stdout.splitlines()
    assert isa in (None, found)
    assert np.array_equal(np.array([row.split() for row in rows], np.int64), expected)
