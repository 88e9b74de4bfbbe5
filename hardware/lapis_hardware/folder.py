"""Write a head as a folder of SystemVerilog: the modules with the network's parameters, its tables, a testbench."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lapis_hardware.head import Head
from lapis_hardware.rows import Rows

VERILOG = Path(__file__).parent / "verilog"
# Modules that belong to no network: single operations of other number formats.
FIXED = ("add_integer", "multiply_integer", "add_float", "multiply_float", "dot_score")
BENCHES = ("bench_form", "bench")
# What a parameter of a module is called in `Head.parameters`, where the module alone would not say.
MEANINGS = {"value_sum": {"IS_SIGNED": "SIGNED_VALUES"}, "readout": {"IS_SIGNED": "SIGNED_READOUT"}}

Array = npt.NDArray[np.int64]


def modules() -> dict[str, str]:
    """The text of every module by its name, as packaged."""
    return {file.stem: file.read_text() for file in sorted(VERILOG.glob("*.sv"))}


def with_parameters(name: str, text: str, parameters: dict[str, int]) -> str:
    """A module whose parameters have the values of a network by default."""
    if name in FIXED:
        return text
    meanings = MEANINGS.get(name, {})

    def value(found: re.Match[str]) -> str:
        known = parameters.get(meanings.get(found[2], found[2]))
        return found[0] if known is None else f"{found[1]}{found[2]} = {known}"

    return re.sub(r"(parameter (?:int|bit) )(\w+) = \d+", value, text)


def write_design(folder: Path, head: Head, rows: Rows) -> list[Path]:
    """All modules, the tables of the head, and the vectors of the testbench."""
    return write_modules(folder, head.parameters | {"ROWS": rows.mass.size}) + write_vectors(folder, head, rows)


def write_modules(folder: Path, parameters: dict[str, int]) -> list[Path]:
    """Every module, with the parameters as its defaults."""
    written = []
    for name, text in modules().items():
        # The head itself starts in its plainest form; the testbench sets each form.
        own = {key: number for key, number in parameters.items() if key != "LEAK" or name == "bench"}
        written.append(folder / f"{name}.sv")
        written[-1].write_text(with_parameters(name, text, own))
    return written


def write_tables(folder: Path, head: Head) -> list[Path]:
    """The hexadecimal files of the head's tables, and its leak."""
    p = head.parameters
    factor = head.factor or (0, 0)
    return _write(
        folder,
        {
            "leak": _words([head.exponent, head.mantissa], [p["EXPONENT_BITS"], p["MANTISSA_BITS"]]),
            "thresholds": _words(list(_thresholds(head)), [p["SUM_BITS"]] * 2),
            "factor": _words([np.array([factor[1]]), np.array([factor[0]])], [p["EXPONENT_BITS"], 32]),
        },
    )


def write_vectors(folder: Path, head: Head, rows: Rows) -> list[Path]:
    """The tables, and the hexadecimal files that the testbench reads."""
    p = head.parameters
    low = p["WINDOW"] if head.signed_codes else 0
    lines = {
        "queries": packed(rows.q + low, p["CODE_BITS"]),
        "keys": packed(rows.k + low, p["CODE_BITS"]),
        "values": packed(rows.v, p["VALUE_BITS"]),
        "distances": _words([rows.distance.reshape(-1)], [p["DISTANCE_BITS"]]),
        "affinities": _words([rows.affinity.reshape(-1)], [p["AFFINITY_BITS"]]),
        "masses": _words([rows.mass.reshape(-1)], [p["MASS_BITS"]]),
        "scales": _words([rows.scale.reshape(-1)], [p["SCALE_BITS"]]),
        "sums": packed(rows.sums, p["SUM_BITS"]),
        "codes": packed(rows.readout, p["READOUT_BITS"]),
    }
    return write_tables(folder, head) + _write(folder, lines)


def _write(folder: Path, lines: dict[str, list[str]]) -> list[Path]:
    for name, content in lines.items():
        (folder / f"{name}.hex").write_text("\n".join(content) + "\n")
    return [folder / f"{name}.hex" for name in lines]


def packed(codes: Array, bits: int) -> list[str]:
    """Vectors (..., C) as one hexadecimal word each, the first channel in the lowest bits."""
    flat = codes.reshape(-1, codes.shape[-1])
    ones = (flat[..., None] >> np.arange(bits)) & 1
    octets = np.packbits(ones.reshape(len(flat), -1).astype(np.uint8), axis=1, bitorder="little")
    return [row[::-1].tobytes().hex() for row in octets]


def _words(fields: list[Array], bits: list[int]) -> list[str]:
    """Numbers side by side in one word, the first in the highest bits."""
    digits = (sum(bits) + 3) // 4
    lines = []
    for numbers in zip(*(field.reshape(-1).tolist() for field in fields), strict=True):
        word = 0
        for number, width in zip(numbers, bits, strict=True):
            word = word << width | (number & ((1 << width) - 1))
        lines.append(f"{word:0{digits}x}")
    return lines


def _thresholds(head: Head) -> tuple[Array, Array]:
    """For each scale and step: what the ON neuron must reach, and what the OFF neuron must be below."""
    p = head.parameters
    window, top = p["WINDOW"], (1 << (p["SUM_BITS"] - 1)) - 1
    levels = np.arange(window, 0, -1)
    low = -window if p["SIGNED_READOUT"] else 0
    on = np.clip(head.thresholds[:, levels - low - 1], -top - 1, top)
    off = np.full_like(on, -top - 1)
    if low:
        off = np.clip(head.thresholds[:, -levels + 1 - low - 1], -top - 1, top)
    late = levels < head.min_code_readout
    on[:, late], off[:, late] = top, -top - 1
    return on, off
