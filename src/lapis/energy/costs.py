"""The cost of one operation in picojoules: tables with a source for each entry, built in or read from a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args

from lapis.config import nearest
from lapis.errors import LapisError
from lapis.files import parse_json

# mac: multiply and accumulate.   accumulate: add a float to a membrane.      integer_accumulate: add an integer.
# mac_8x16: integer products of a byte and 16 bits, summed in 32.   mac_16x16: of two 16-bit numbers, summed in 64.
# lookup: read one table entry.   scale: one general scaling (a division).    shift: scale by a power of two.
# local_byte: fetch a byte from memory beside the adder.   global_byte: fetch a byte from the large on-chip memory.
Kind = Literal[
    "mac", "accumulate", "integer_accumulate", "mac_8x16", "mac_16x16", "lookup", "scale", "shift", "local_byte",
    "global_byte",
]  # fmt: skip
KINDS: tuple[Kind, ...] = get_args(Kind)

DEFAULT_TABLE = "45nm"
PJ_PER_MJ = 1e9
_FIELDS = ("name", "node", "float_bytes", "pj")


@dataclass(frozen=True)
class Costs:
    """Picojoules of each kind of operation, and where each figure comes from.

    `float_bytes` is the size of an unquantized number at this precision; only the memory term uses it.
    """

    name: str
    node: str
    float_bytes: int
    pj: Mapping[Kind, float]
    sources: Mapping[Kind, str]

    def to_dict(self) -> dict[str, Any]:
        """The table in the form of its file."""
        return {
            "name": self.name,
            "node": self.node,
            "float_bytes": self.float_bytes,
            "pj": {kind: {"cost": self.pj[kind], "source": self.sources[kind]} for kind in KINDS},
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
    """A cost table from its JSON text; every kind of operation needs a cost and a source."""
    fields = parse_json(text, where)
    if not isinstance(fields, dict) or set(fields) != set(_FIELDS):
        found = ", ".join(sorted(fields)) if isinstance(fields, dict) else type(fields).__name__
        raise LapisError(f"{where} holds {found or 'nothing'}; a cost table has the fields {', '.join(_FIELDS)}")
    entries = fields["pj"]
    if not isinstance(entries, dict) or set(entries) != set(KINDS):
        found = ", ".join(sorted(entries)) if isinstance(entries, dict) else type(entries).__name__
        raise LapisError(f"{where}: 'pj' holds {found or 'nothing'}; it needs exactly {', '.join(KINDS)}")
    float_bytes = fields["float_bytes"]
    if isinstance(float_bytes, bool) or not isinstance(float_bytes, int) or float_bytes < 1:
        raise LapisError(f"{where}: float_bytes={float_bytes!r} must be a whole number of bytes, as 4 for FP32")
    for name in ("name", "node"):
        if not isinstance(fields[name], str) or not fields[name].strip():
            raise LapisError(f"{where}: {name}={fields[name]!r} must be text")
    pj: dict[Kind, float] = {}
    sources: dict[Kind, str] = {}
    for kind in KINDS:
        pj[kind], sources[kind] = _entry(entries[kind], f"{where}: pj.{kind}")
    return Costs(fields["name"], fields["node"], float_bytes, pj, sources)


def _entry(entry: Any, where: str) -> tuple[float, str]:
    if not isinstance(entry, dict) or set(entry) != {"cost", "source"}:
        raise LapisError(f'{where}={entry!r} must look like {{"cost": 0.9, "source": "who measured it"}}')
    cost, source = entry["cost"], entry["source"]
    if isinstance(cost, bool) or not isinstance(cost, (int, float)) or not math.isfinite(cost) or cost < 0:
        raise LapisError(f"{where}.cost={cost!r} must be a finite number of picojoules, 0 or more")
    if not isinstance(source, str) or not source.strip():
        raise LapisError(f"{where}.source={source!r} must name where the figure comes from")
    return float(cost), source
