"""The cost of one operation in picojoules: tables with a source for each entry, built in or read from a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from lapis._util.files import parse_json
from lapis.config import AFFINITY_BITS, nearest
from lapis.energy.fields import NUMBER, POSITIVE, TABLE, TEXT, WHOLE, checked, read_fields
from lapis.errors import LapisError

# mac: multiply and accumulate.   accumulate: add a float to a membrane.      integer_accumulate: add an integer.
# multiply: two 8-bit integers.   product: integers of any width, multiplied and summed; every table can price it.
# lookup: read one table entry.   scale: one general scaling (a division).    shift: scale by a power of two.
# local_byte: fetch a byte from memory beside the adder.   global_byte: fetch a byte from the large on-chip memory.
# Circuits, in tables that were measured in gates. dot: one 8-bit product in a tree that sums 64.
# compare: one channel of a score.   affinity: one pair, from its distance.   row_sum: add one affinity to its row.
# row_exponent: round(log2) of a row.   weigh: one channel of a value times an affinity, summed.
Kind = Literal[
    "mac", "accumulate", "integer_accumulate", "multiply", "lookup", "scale", "shift", "local_byte", "global_byte",
    "product", "dot", "compare", "affinity", "row_sum", "row_exponent", "weigh",
]  # fmt: skip
CIRCUITS: tuple[Kind, ...] = ("dot", "compare", "affinity", "row_sum", "row_exponent", "weigh")
KINDS: tuple[Kind, ...] = tuple(kind for kind in get_args(Kind) if kind not in (*CIRCUITS, "product"))

DEFAULT_TABLE = "45nm"
# The table of the same node in which floats are 8-bit integers.
INT8_TABLES = {"45nm": "45nm_int8", "45nm_gates": "45nm_gates_int8"}
PJ_PER_MJ = 1e9
_ADDER_BITS = 32


@dataclass(frozen=True)
class Unit:
    """The operation that all entries of a table are ratios to, and the picojoules that it is taken to cost."""

    operation: str
    pj: float
    source: str


@dataclass(frozen=True)
class Costs:
    """Picojoules of each kind of operation, and where each figure comes from.

    `float_bytes` is the size of an unquantized number at this precision; only the memory term uses it. A table that was
    measured in gates has the `unit` of its ratios and circuits, some of them `by_width` of the affinities. `fields` are
    those of its file.
    """

    name: str
    node: str
    float_bytes: int
    pj: Mapping[Kind, float]
    by_width: Mapping[Kind, Mapping[int, float]]
    unit: Unit | None
    fields: Mapping[str, Any]

    @property
    def circuits(self) -> bool:
        """Whether this table prices the circuits of a head."""
        return "compare" in self.pj

    def price(self, kind: Kind, affinity_bits: int = AFFINITY_BITS, operands: tuple[int, int] = (8, 8)) -> float:
        """Picojoules of one operation.

        A multiplication costs as the product of the widths of its `operands`, and its sum as additions of 32 bits. A
        circuit is priced at the least measured width that holds `affinity_bits`.
        """
        share = math.prod(operands) / 64
        if kind == "product":
            adders = 1 + sum(operands) // _ADDER_BITS
            return self.pj["multiply"] * share + self.pj["integer_accumulate"] * adders
        if kind not in self.pj:
            raise LapisError(
                f"cost table {self.name} prices operations and no circuits; use 45nm_gates, or another convention"
            )
        widths = self.by_width[kind]
        return widths[min(width for width in widths if width >= affinity_bits)] * (share if kind == "dot" else 1)


def tables() -> list[str]:
    """Names of the cost tables that come with Lapis."""
    files = (resources.files("lapis.energy") / "tables").iterdir()
    return sorted(file.name.removesuffix(".json") for file in files if file.name.endswith(".json"))


def load_costs(name_or_file: str | Path = DEFAULT_TABLE) -> Costs:
    """A cost table by its name, or from a JSON file of the same form."""
    known = tables()
    if str(name_or_file) in known:
        text = (resources.files("lapis.energy") / "tables" / f"{name_or_file}.json").read_text(encoding="utf-8")
        return parse_costs(text, f"table {name_or_file}")
    path = Path(name_or_file)
    if not path.is_file():
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
    """A cost table from its JSON text; every kind of operation needs a cost and a source.

    With a `unit`, costs are ratios to it. A table has all circuits or none; these may have costs by width.
    """
    needed = {"name": TEXT, "node": TEXT, "float_bytes": WHOLE, "costs": TABLE}
    fields = read_fields(parse_json(text, where), needed, where, {"unit": TABLE})
    unit = None
    if "unit" in fields:
        of = {"operation": TEXT, "pj": POSITIVE, "source": TEXT}
        unit = Unit(**read_fields(fields["unit"], of, f"{where}: unit"))
    kinds = KINDS + (CIRCUITS if fields["costs"].keys() & set(CIRCUITS) else ())
    entries = read_fields(fields["costs"], dict.fromkeys(kinds, TABLE), f"{where}: costs")
    by_width = {kind: _widths(entries[kind], kind, unit, f"{where}: costs.{kind}") for kind in kinds}
    pj = {kind: costs[AFFINITY_BITS] for kind, costs in by_width.items()}
    return Costs(fields["name"], fields["node"], fields["float_bytes"], pj, by_width, unit, fields)


def _widths(entry: Any, kind: Kind, unit: Unit | None, where: str) -> dict[int, float]:
    """Picojoules by the width of affinities; one number holds for all of them."""
    by_width = kind in CIRCUITS and isinstance(entry.get("cost"), dict)
    given = read_fields(entry, {"cost": TABLE if by_width else NUMBER, "source": TEXT}, where)["cost"]
    costs = given if by_width else {str(AFFINITY_BITS): given}
    if not costs.keys() <= set(map(str, range(1, AFFINITY_BITS + 1))) or str(AFFINITY_BITS) not in costs:
        raise LapisError(
            f"{where}: cost={costs!r} must be a number, or numbers by the width of affinities, from 1 to "
            f'{AFFINITY_BITS} bits and at least that of {AFFINITY_BITS}: {{"{AFFINITY_BITS}": 2.5}}'
        )
    scale = 1.0 if unit is None else unit.pj
    return {int(bits): checked(cost, NUMBER, f"{where}: cost.{bits}") * scale for bits, cost in costs.items()}
