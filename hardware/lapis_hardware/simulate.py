"""Run the testbench of a design and count where the circuit differs from the integer model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lapis import LapisError
from lapis_hardware import tools

FORMS = ("minimum", "difference", "temporal")
# In the order of `compare` in bench_form.sv.
QUANTITIES = ("distance", "affinity", "row sum", "exponent", "sums", "readout codes")
# The testbench waits for its clock in coroutines.
CPP_FLAGS = "-O1 -std=c++20"
# The package's makefile leaves out how a precompiled header is included.
MAKE_FLAGS = "CFG_CXXFLAGS_PCH_I=-include"
_LINE = re.compile(r"form (\d+) quantity (\d+) compared (\d+) different (\d+)")


@dataclass(frozen=True)
class Comparison:
    """How often a quantity of a form was compared, and how often it differed."""

    form: str
    quantity: str
    compared: int
    different: int


def build(design: Path, simulator: str, forms: tuple[int, int] = (0, 2)) -> list[str]:
    """Compile the testbench of a design with Verilator or Icarus; gives the command that runs it."""
    sources = sorted(str(path.resolve()) for path in design.glob("*.sv"))
    first, last = forms
    if simulator == "icarus":
        tools.require("icarus")
        target = design / "bench.vvp"
        chosen = [f"-Pbench.FIRST_FORM={first}", f"-Pbench.LAST_FORM={last}"]
        tools.run(["iverilog", "-g2012", *chosen, "-s", "bench", "-o", str(target), *sources], design)
        return ["vvp", "-n", str(target.resolve())]
    chosen = [f"-GFIRST_FORM={first}", f"-GLAST_FORM={last}"]
    # Warnings of the modules are the business of `lint`; here they would stop an older version over a newer rule.
    flags = [
        "--binary",
        "-j",
        "1",
        "-O3",
        "-LDFLAGS",
        "-pthread",
        "-Wno-fatal",
        "-Wno-lint",
        "-CFLAGS",
        CPP_FLAGS,
        "-MAKEFLAGS",
        MAKE_FLAGS,
    ]
    tools.run_verilator([*flags, *chosen, "--top-module", "bench", "--Mdir", "obj_dir", *sources], design)
    return [str((design / "obj_dir" / "Vbench").resolve())]


def compare(command: list[str], vectors: Path, rows: int) -> list[Comparison]:
    """Run a testbench on the first rows of a folder of vectors."""
    printed = tools.run([*command, f"+rows={rows}"], vectors)
    found = [
        Comparison(FORMS[int(form)], QUANTITIES[int(quantity)], int(compared), int(different))
        for form, quantity, compared, different in _LINE.findall(printed)
    ]
    if not found or any(one.compared < rows for one in found):
        raise LapisError(
            f"the testbench in {vectors} ended before its rows: {printed[-tools.LONGEST_MESSAGE :].strip()}"
        )
    return found


def lint(design: Path, top: str, parameters: dict[str, int] | None = None) -> str:
    """Verilator's warnings about a module, with every check on; empty if there are none."""
    chosen = [f"-G{name}={value}" for name, value in (parameters or {}).items()]
    try:
        printed = tools.run_verilator(
            ["--lint-only", "-Wall", "--quiet-stats", *chosen, "--top-module", top, "-y", ".", f"{top}.sv"], design
        )
    except LapisError as error:
        return str(error)
    return "\n".join(line for line in printed.splitlines() if line.startswith("%"))
