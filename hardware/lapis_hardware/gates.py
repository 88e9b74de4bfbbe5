"""The event-driven simulator of gates in gates.c, which is compiled where it is first used."""

from __future__ import annotations

import ctypes
import functools
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lapis import LapisError

SOURCE = Path(__file__).with_name("gates.c")
BUILT = SOURCE.parents[1] / "build" / "gates.so"
GATE_INPUTS = 6
COMPILE = ("-O2", "-std=c11", "-Wall", "-Wextra", "-shared", "-fPIC")
PROBLEMS = {1: "the netlist names nets that do not exist", 2: "the netlist oscillates, or memory is full"}

Int32 = npt.NDArray[np.int32]


class Seen(NamedTuple):
    """Watched nets (cycles, watched), and rises and falls (nets, 2) of every net, with pulses and without."""

    values: npt.NDArray[np.uint8]
    timed: npt.NDArray[np.int64]
    settled: npt.NDArray[np.int64]


@dataclass(frozen=True)
class Gates:
    """A netlist as the simulator takes it; gates.c says what each array holds."""

    nets: int
    inputs: Int32
    tables: npt.NDArray[np.uint64]
    outputs: Int32
    rise: Int32
    fall: Int32
    data: Int32
    state: Int32

    def run(self, drive: Int32, values: npt.NDArray[np.uint8], watch: Int32) -> Seen:
        """Clock rows of values (cycles, driven) into the nets `drive`, and look at the nets `watch`."""
        seen = Seen(
            np.zeros((len(values), len(watch)), dtype=np.uint8),
            np.zeros((self.nets, 2), dtype=np.int64),
            np.zeros((self.nets, 2), dtype=np.int64),
        )
        arrays = (self.inputs, self.tables, self.outputs, self.rise, self.fall)
        status = library().gates_run(
            self.nets, len(self.tables), *(x.ctypes.data for x in arrays), len(self.data), self.data.ctypes.data,
            self.state.ctypes.data, len(drive), drive.ctypes.data, len(values), values.ctypes.data, len(watch),
            watch.ctypes.data, *(x.ctypes.data for x in seen),
        )  # fmt: skip
        if status:
            raise LapisError(f"the gates cannot be simulated: {PROBLEMS[status]}")
        return seen


def compiler() -> str | None:
    """The C compiler of this machine: $CC, or cc."""
    return shutil.which(os.environ.get("CC", "cc"))


@functools.cache
def library() -> ctypes.CDLL:
    """The compiled simulator; it is compiled again where its source is newer."""
    if not BUILT.exists() or BUILT.stat().st_mtime < SOURCE.stat().st_mtime:
        found = compiler()
        if found is None:
            raise LapisError("toggles of gates are counted in C, and there is no C compiler; install gcc or clang")
        BUILT.parent.mkdir(exist_ok=True)
        fresh = BUILT.with_suffix(f".{os.getpid()}")
        done = subprocess.run([found, *COMPILE, str(SOURCE), "-o", str(fresh)], capture_output=True, text=True)
        if done.returncode:
            raise LapisError(f"{found} cannot compile {SOURCE}: {done.stderr.strip()}")
        fresh.replace(BUILT)
    loaded = ctypes.CDLL(str(BUILT))
    pointer, count = ctypes.c_void_p, ctypes.c_int64
    loaded.gates_run.argtypes = [
        count, count, *[pointer] * 5, count, pointer, pointer, count, pointer, count, pointer, count, *[pointer] * 4,
    ]  # fmt: skip
    return loaded
