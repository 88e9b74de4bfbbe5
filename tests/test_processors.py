"""The library on other processors and systems, in an emulator: detection of instruction sets, and equal answers.

`make cross` builds it for all whose compiler is there. `make arm` and `make riscv` also run the other tests of the
kernels and of the engine there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.emulators import ARM, RISCV, ROOT, WINE, emulator, expected_logits, logits_of
from tools.cross.remote import part_of

# Who runs the program, and the instruction set that it must find on that processor. Wine's is the one of this machine.
RUNS = {
    "arm_of_2012": ("arm/logits", f"{ARM} -cpu cortex-a53", "neon"),
    "arm_with_dot_products": ("arm/logits", f"{ARM} -cpu neoverse-n1", "neondot"),
    "arm_with_matrix_products": ("arm/logits", f"{ARM} -cpu max", "neoni8mm"),
    "riscv": ("riscv/logits", RISCV, "scalar"),
    "windows": ("windows/logits.exe", WINE, None),
}


@pytest.mark.parametrize("run", RUNS)
def test_every_processor_gives_the_logits_of_the_integer_model(run: str, tmp_path: Path) -> None:
    program, command, isa = RUNS[run]
    path = ROOT / "build" / program
    start = emulator(command)
    if not path.is_file():
        pytest.skip(f"no build/{program}: make cross builds it where the compiler is")
    found, logits = logits_of(start, path, tmp_path)
    assert isa in (None, found)
    assert np.array_equal(logits, expected_logits())


@pytest.mark.parametrize("parts", [1, 2, 3, 4])
def test_every_emulated_test_is_in_one_part_with_its_twins_on_other_instruction_sets(parts: int) -> None:
    cases = [f"case {number % 7}" for number in range(21)]
    chosen = np.array([part_of(cases, f"{part}/{parts}") for part in range(1, parts + 1)])
    assert (chosen.sum(axis=0) == 1).all()
    assert (chosen == np.roll(chosen, 7, axis=1)).all()
    assert np.ptp(chosen.sum(axis=1)) <= 3
