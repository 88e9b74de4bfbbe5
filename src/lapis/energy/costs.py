"""The cost of one operation in picojoules: tables with a source for each entry, built in or read from a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from lapis._util.files import parse_json
from lapis.config import AFFINITY_BITS, nearest
from lapis.errors import LapisError

# mac: multiply and accumulate.   accumulate: add a float to a membrane.      integer_accumulate: add an integer.
# mac_8x16: integer products of a byte and 16 bits, summed in 32.   mac_16x16: of two 16-bit numbers, summed in 64.
# lookup: read one table entry.   scale: one general scaling (a division).    shift: scale by a power of two.
# local_byte: fetch a byte from memory beside the adder.   global_byte: fetch a byte from the large on-chip memory.
# Circuits of a deployed head, in tables that were measured in gates. compare: one channel of a score.
# affinity: one pair, from its distance.   row_sum: add one affinity to its row.   row_exponent: round(log2) of a row.
# weigh: one channel of a value times an affinity, summed.
Kind = Literal[
    "mac", "accumulate", "integer_accumulate", "mac_8x16", "mac_16x16", "lookup", "scale", "shift", "local_byte",
    "global_byte", "compare", "affinity", "row_sum", "row_exponent", "weigh",
]  # fmt: skip
CIRCUITS: tuple[Kind, ...] = ("compare", "affinity", "row_sum", "row_exponent", "weigh")
KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind not in CIRCUITS)

DEFAULT_TABLE = "45nm"
PJ_PER_MJ = 1e9
# Digits behind the point of a ratio; a library differs from the next in the first.
RATIO_DIGITS = 3
_FIELDS = ("name", "node", "float_bytes", "pj")
# A table of circuits has ratios in place of picojoules, the operation that they are ratios to, and its circuits.
_CIRCUIT_FIELDS = ("name", "node", "float_bytes", "unit", "ratios", "circuits")


@dataclass(frozen=True)
class Unit:
    """The operation that all entries of a table are ratios to, and the picojoules that it is taken to cost."""

    operation: str
    pj: float
    source: str


@dataclass(frozen=True)
class Circuit:
    """Picojoules of one use of a circuit by the width of its affinities, and the module that was measured."""

    pj: Mapping[int, float]
    source: str

    def price(self, bits: int) -> float:
        """At the least measured width that holds `bits`."""
        return self.pj[min(width for width in self.pj if width >= bits)]


@dataclass(frozen=True)
class Costs:
    """Picojoules of each kind of operation, and where each figure comes from.

    `float_bytes` is the size of an unquantized number at this precision; only the memory term uses it. A table that was
    measured in gates has `circuits` too, and the `unit` of its ratios.
    """

    name: str
    node: str
    float_bytes: int
    pj: Mapping[Kind, float]
    sources: Mapping[Kind, str]
    unit: Unit | None = None
    circuits: Mapping[Kind, Circuit] = field(default_factory=dict)

    def price(self, kind: Kind, bits: int) -> float:
        """Picojoules of one operation in a network whose affinities have `bits` bits."""
        if kind not in CIRCUITS:
            return self.pj[kind]
        if kind not in self.circuits:
            raise LapisError(
                f"cost table {self.name} prices operations and no circuits; use 45nm_gates, or another convention"
            )
        return self.circuits[kind].price(bits)

    def to_dict(self) -> dict[str, Any]:
        """The table in the form of its file."""
        if self.unit is not None:
            return self._ratios(self.unit)
        return {
            "name": self.name,
            "node": self.node,
            "float_bytes": self.float_bytes,
            "pj": {kind: {"cost": self.pj[kind], "source": self.sources[kind]} for kind in KINDS},
        }

    def _ratios(self, unit: Unit) -> dict[str, Any]:
        def ratio(pj: float) -> float:
            return round(pj / unit.pj, RATIO_DIGITS)

        return {
            "name": self.name,
            "node": self.node,
            "float_bytes": self.float_bytes,
            "unit": {"operation": unit.operation, "pj": unit.pj, "source": unit.source},
            "ratios": {kind: {"ratio": ratio(self.pj[kind]), "source": self.sources[kind]} for kind in KINDS},
            "circuits": {
                kind: {"ratio": {str(bits): ratio(pj) for bits, pj in circuit.pj.items()}, "source": circuit.source}
                for kind, circuit in self.circuits.items()
            },
        }


def tables() -> list[str]:
    """Names of the cost tables that come with Lapis."""
    files = (resources.files("lapis.energy") / "tables").iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def load_costs(name_or_file: str | Path = DEFAULT_TABLE) -> Costs:
    """A cost table by its name, or from a JSON file of the same form."""
    if str(name_or_file) in tables():
        text = (resources.files("lapis.energy") / "tables" / f"{name_or_file}.json").read_text(encoding="utf-8")
        return parse_costs(text, f"table {name_or_file}")
    path = Path(name_or_file)
    if not path.is_file():
        known = tables()
        raise LapisError(
            f"no cost table {str(name_or_file)!r}; {nearest(str(name_or_file), known)}"
            f"use {', '.join(known)} or the path of a JSON file (docs/energy.md shows one)"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LapisError(f"cost table {path} cannot be read: {error}") from error
    return parse_costs(text, str(path))


def parse_costs(text: str, where: str) -> Costs:
    """A cost table from its JSON text; every kind of operation needs a cost, or a ratio, and a source."""
    fields = parse_json(text, where)
    in_gates = isinstance(fields, dict) and "unit" in fields
    expected = _CIRCUIT_FIELDS if in_gates else _FIELDS
    if not isinstance(fields, dict) or set(fields) != set(expected):
        found = ", ".join(sorted(fields)) if isinstance(fields, dict) else type(fields).__name__
        raise LapisError(f"{where} holds {found or 'nothing'}; a cost table has the fields {', '.join(expected)}")
    float_bytes = fields["float_bytes"]
    if isinstance(float_bytes, bool) or not isinstance(float_bytes, int) or float_bytes < 1:
        raise LapisError(f"{where}: float_bytes={float_bytes!r} must be a whole number of bytes, as 4 for FP32")
    for name in ("name", "node"):
        if not isinstance(fields[name], str) or not fields[name].strip():
            raise LapisError(f"{where}: {name}={fields[name]!r} must be text")
    unit = _unit(fields["unit"], f"{where}: unit") if in_gates else None
    table, word = ("ratios", "ratio") if in_gates else ("pj", "cost")
    entries = _all_of(fields[table], KINDS, f"{where}: {table!r}")
    pj: dict[Kind, float] = {}
    sources: dict[Kind, str] = {}
    for kind in KINDS:
        cost, sources[kind] = _entry(entries[kind], word, f"{where}: {table}.{kind}")
        pj[kind] = _number(cost, f"{where}: {table}.{kind}.{word}") * (1.0 if unit is None else unit.pj)
    circuits = {} if unit is None else _circuits(fields["circuits"], unit, where)
    return Costs(fields["name"], fields["node"], float_bytes, pj, sources, unit, circuits)


def _all_of(entries: Any, kinds: tuple[Kind, ...], where: str) -> dict[Kind, Any]:
    if not isinstance(entries, dict) or set(entries) != set(kinds):
        found = ", ".join(sorted(entries)) if isinstance(entries, dict) else type(entries).__name__
        raise LapisError(f"{where} holds {found or 'nothing'}; it needs exactly {', '.join(kinds)}")
    return entries


def _unit(entry: Any, where: str) -> Unit:
    if not isinstance(entry, dict) or set(entry) != {"operation", "pj", "source"}:
        raise LapisError(f'{where}={entry!r} must look like {{"operation": "8-bit add", "pj": 0.03, "source": "..."}}')
    pj = _number(entry["pj"], f"{where}.pj")
    if not pj or not all(isinstance(entry[name], str) and entry[name].strip() for name in ("operation", "source")):
        raise LapisError(f"{where} needs picojoules above 0, and an operation and a source as text")
    return Unit(entry["operation"], pj, entry["source"])


def _circuits(entries: Any, unit: Unit, where: str) -> dict[Kind, Circuit]:
    found: dict[Kind, Circuit] = {}
    for kind, entry in _all_of(entries, CIRCUITS, f"{where}: 'circuits'").items():
        place = f"{where}: circuits.{kind}"
        ratios, source = _entry(entry, "ratio", place)
        widths = {str(bits) for bits in range(1, AFFINITY_BITS + 1)}
        if not isinstance(ratios, dict) or not ratios.keys() <= widths or str(AFFINITY_BITS) not in ratios:
            raise LapisError(
                f"{place}.ratio={ratios!r} must have ratios by the width of affinities, from 1 to {AFFINITY_BITS} bits "
                f'and at least that of {AFFINITY_BITS}: {{"{AFFINITY_BITS}": 2.5}}'
            )
        pj = {int(bits): _number(ratio, f"{place}.ratio.{bits}") * unit.pj for bits, ratio in ratios.items()}
        found[kind] = Circuit(pj, source)
    return found


def _number(value: Any, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        what = "number of picojoules" if where.endswith(("cost", "pj")) else "ratio"
        raise LapisError(f"{where}={value!r} must be a finite {what}, 0 or more")
    return float(value)


def _entry(entry: Any, word: str, where: str) -> tuple[Any, str]:
    if not isinstance(entry, dict) or set(entry) != {word, "source"}:
        raise LapisError(f'{where}={entry!r} must look like {{"{word}": 0.9, "source": "who measured it"}}')
    cost, source = entry[word], entry["source"]
    if not isinstance(source, str) or not source.strip():
        raise LapisError(f"{where}.source={source!r} must name where the figure comes from")
    return cost, source
