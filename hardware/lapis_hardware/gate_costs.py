"""Write the cost tables 45nm_gates and 45nm_gates_int8 from what the lanes of a head were measured to cost in gates.

A measurement is one line of hardware/measured.jsonl: a lane of `python -m lapis_hardware --measure` in one cell
library, in a head whose affinities have so many bits, with picojoules per unit of its work with glitches (timed) and
without (settled). Every entry of a table is a ratio to one 8-bit addition in the same library, the geometric mean of
the libraries. Narrow affinities were not measured in all of them, so their entries are that of 15 bits times the mean
of what they save.

    python -m lapis_hardware.gate_costs
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lapis.config import AFFINITY_BITS
from lapis.energy.costs import Kind, parse_costs

HERE = Path(__file__).resolve().parents[1]
MEASURED = HERE / "measured.jsonl"
TABLES = HERE.parent / "src" / "lapis" / "energy" / "tables"
UNIT, UNIT_PJ = "add 8", 0.03
HOROWITZ = "Horowitz, Computing's energy problem, ISSCC 2014, 45 nm at 0.9 V"
NODE = "ratios measured in gates, in open libraries of 130 and 45 nm, scaled by an 8-bit add of 45 nm; no silicon"
# Channels of the lanes that compute a whole score.
CHANNELS = 64
# Digits behind the point of a ratio; a library differs from the next in the first.
RATIO_DIGITS = 3
# Memories are no gates; these entries are those of the table 45nm.
MEMORY_PJ = {"local_byte": 1.25, "global_byte": 12.5}
CIRCUITS: dict[Kind, str] = {"affinity": "lookup", "row_sum": "row sum", "row_exponent": "exponent", "weigh": "value"}


class Measured:
    """All measurements: the ratio of a lane to an 8-bit addition, by library."""

    def __init__(self, lines: Iterable[dict[str, Any]]) -> None:
        self.lines = list(lines)

    def ratios(self, lane: str, bits: int = AFFINITY_BITS, field: str = "timed_pj", uses: int = 1) -> dict[str, float]:
        """By library, for one of the `uses` channels of a lane; libraries that did not measure it are left out."""
        unit = {line["library"]: line[field] for line in self.lines if line["name"] == UNIT}
        return {
            line["library"]: line[field] / uses / unit[line["library"]]
            for line in self.lines
            if (line["name"], line["affinity_bits"]) == (lane, bits)
        }

    def entry(self, lane: str, uses: int = 1) -> tuple[float, str]:
        """The ratio of a lane, and its source: the module, and the ratio in every library."""
        timed, settled = self.ratios(lane, uses=uses), self.ratios(lane, field="settled_pj", uses=uses)
        module = next(line["module"] for line in self.lines if line["name"] == lane)
        found = ", ".join(f"{name} {timed[name]:.3g} ({settled[name]:.3g} without glitches)" for name in timed)
        per = f", one of its {uses} channels" if uses > 1 else ""
        return _mean(timed.values()), f"module {module}, lane '{lane}'{per}: {found}"

    def by_width(self, lane: str) -> dict[str, float]:
        """The ratios of a lane by the width of affinities, widest first."""
        widest = self.ratios(lane)
        full = _mean(widest.values())
        found = {}
        for bits in range(AFFINITY_BITS, 0, -1):
            if narrow := self.ratios(lane, bits):
                found[str(bits)] = _rounded(full * _mean(narrow[one] / widest[one] for one in narrow))
        return found


def _mean(values: Iterable[float]) -> float:
    """The geometric mean."""
    logs = [math.log(value) for value in values]
    return math.exp(math.fsum(logs) / len(logs))


def _rounded(ratio: float) -> float:
    return round(ratio, RATIO_DIGITS)


def table(measured: Measured, name: str, mac: tuple[float, str], add: tuple[float, str], float_bytes: int) -> str:
    """A cost table whose dense network multiplies and adds at these ratios."""
    ratios: dict[str, tuple[float, str]] = {
        "mac": mac,
        "accumulate": add,
        "integer_accumulate": measured.entry("add 32"),
        "multiply": measured.entry("multiply 8"),
        "lookup": measured.entry("lookup"),
        "scale": (mac[0], f"charged as a MAC, as in the paper: {mac[1]}"),
        "shift": (0.0, "not measured; taken as 0, as in the paper"),
        **{kind: (pj / UNIT_PJ, f"not measured, memories are no gates: {HOROWITZ}") for kind, pj in MEMORY_PJ.items()},
        "dot": measured.entry("dot int8", CHANNELS),
        "compare": measured.entry("minimum", CHANNELS),
    }
    entries: dict[str, tuple[Any, str]] = {kind: (_rounded(ratio), source) for kind, (ratio, source) in ratios.items()}
    entries |= {kind: (measured.by_width(lane), measured.entry(lane)[1]) for kind, lane in CIRCUITS.items()}
    fields = {
        "name": name,
        "node": NODE,
        "float_bytes": float_bytes,
        "unit": {"operation": "8-bit integer add", "pj": UNIT_PJ, "source": HOROWITZ},
        "costs": {kind: {"cost": cost, "source": source} for kind, (cost, source) in entries.items()},
    }
    text = json.dumps(fields, indent=2) + "\n"
    parse_costs(text, name)
    return text


def tables() -> dict[str, str]:
    """The text of every table, by its name."""
    measured = Measured(json.loads(line) for line in MEASURED.read_text(encoding="utf-8").splitlines())
    (add, add_source), (multiply, multiply_source) = measured.entry("add fp32"), measured.entry("multiply fp32")
    float_mac = multiply + add, f"{multiply_source}; {add_source}"
    return {
        "45nm_gates": table(measured, "45nm_gates", float_mac, (add, add_source), 4),
        "45nm_gates_int8": table(
            measured, "45nm_gates_int8", measured.entry("dot int8", CHANNELS), measured.entry("add 32"), 1
        ),
    }


def main() -> None:
    for name, text in tables().items():
        (TABLES / f"{name}.json").write_text(text, encoding="utf-8")
        print(f"{name}: {len(text):,} bytes")


if __name__ == "__main__":
    main()
