"""Reduce a Liberty file to the cells that synthesis uses: python -m lapis_hardware.reduce_cells FULL.lib > SMALL.lib.

Kept are plain gates and flip-flops, of them the delays, transitions and energies; left out are latches, scan, clock
gates, tri-state and delay cells, fillers, constraints and state-dependent leakage. Numbers are copied as they are.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from lapis_hardware.liberty import Group, parse

LEFT_OUT = re.compile(r"dl[hl]|dlyg|gcp|ebuf|einv|sdf|fill|decap|antenna|sighold|_16$|_8$")
GROUPS = {"leakage_power", "operating_conditions", "wire_load", "wire_load_selection", "wire_load_table"}
ATTRIBUTES = re.compile(r"default_wire_load|default_operating_conditions")
TYPES = {"", "combinational", "rising_edge"}


def text_of(group: Group) -> Iterator[str]:
    yield f"{group.kind} ({','.join(group.names)}) {{"
    for name, value in group.attributes:
        if ATTRIBUTES.match(name):
            continue
        if name in ("index_1", "index_2", "values"):
            yield f'{name} ("{re.sub(" ", "", value)}");'
        elif name == "capacitive_load_unit":
            yield f"{name} ({value});"
        else:
            yield f'{name} : "{value}";' if re.search(r"[^\w.+-]", value) else f"{name} : {value};"
    for inner in group.groups:
        if kept(inner):
            yield from text_of(inner)
    yield "}"


def kept(group: Group) -> bool:
    if group.kind == "cell":
        return not LEFT_OUT.search(group.names[0])
    if group.kind == "timing":
        return group.get("timing_type") in TYPES
    return group.kind not in GROUPS


if __name__ == "__main__":
    source = Path(sys.argv[1]).read_text()
    header = re.match(r"/\*.*?\*/", source, flags=re.DOTALL)
    print(header[0] if header else "")
    print("/* Changed for Lapis: reduced by lapis_hardware.reduce_cells to what measuring needs. */")
    print("\n".join(text_of(parse(source, sys.argv[1]))))
