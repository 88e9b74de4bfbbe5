"""The part of the Liberty format that counts gates: functions, areas, capacitances, delays and energies of cells."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lapis import LapisError

_TOKEN = re.compile(r'"[^"]*"|[^\s{}():;,"]+|[{}():;,]')
_FUNCTION = re.compile(r"[\w\s()!'&|*+^]+")
_TIMES_PS = {"1ps": 1.0, "10ps": 10.0, "100ps": 100.0, "1ns": 1000.0}
_CAPACITANCES_FF = {"ff": 1.0, "pf": 1000.0}
# Delays and energies of a cell depend on how fast its input moves; one slope, for all.
SLEW_PS = 30.0


@dataclass
class Group:
    """`kind (names) { ... }`: its attributes as pairs of name and text, and the groups inside."""

    kind: str
    names: list[str]
    attributes: list[tuple[str, str]] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)

    def get(self, name: str, default: str = "") -> str:
        return next((value for key, value in reversed(self.attributes) if key == name), default)

    def all(self, kind: str) -> Iterator[Group]:
        return (group for group in self.groups if group.kind == kind)


def parse(text: str, where: str) -> Group:
    """The library of a Liberty file as a tree."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).replace("\\\n", " ")
    tokens = _TOKEN.findall(text)
    root = Group("file", [])
    stack, at = [root], 0
    try:
        while at < len(tokens):
            at = _statement(tokens, at, stack)
    except IndexError as error:
        raise LapisError(f"{where} is not a Liberty file: it ends inside a group") from error
    found = list(root.all("library"))
    if len(found) != 1:
        raise LapisError(f"{where} is not a Liberty file: it holds {len(found)} libraries, not one")
    return found[0]


def _statement(tokens: list[str], at: int, stack: list[Group]) -> int:
    """Read one attribute, or the begin or end of a group; gives where the next statement begins."""
    token = tokens[at]
    if token == "}":
        stack.pop()
        return at + 1
    if token in ";,":
        return at + 1
    if tokens[at + 1] == ":":
        end = tokens.index(";", at)
        stack[-1].attributes.append((token, " ".join(tokens[at + 2 : end]).strip('"')))
        return end + 1
    if tokens[at + 1] != "(":
        return at + 1
    end = tokens.index(")", at)
    names = [name.strip('"') for name in tokens[at + 2 : end] if name != ","]
    if end + 1 < len(tokens) and tokens[end + 1] == "{":
        group = Group(token, names)
        stack[-1].groups.append(group)
        stack.append(group)
        return end + 2
    stack[-1].attributes.append((token, ",".join(names)))
    return end + 1


@dataclass(frozen=True)
class Curve:
    """Numbers over the load of an output in fF, at the one slope of the input; without an axis it is one number."""

    loads: tuple[float, ...]
    values: tuple[float, ...]

    def at(self, load: float) -> float:
        """Interpolated; beyond the ends, along the last line."""
        return _between(self.loads, self.values, load)


def _between(axis: tuple[float, ...], values: list[float] | tuple[float, ...], x: float) -> float:
    if len(values) == 1 or len(axis) < 2:
        return values[0]
    i = min(max(bisect_right(axis, x) - 1, 0), len(axis) - 2)
    return values[i] + (x - axis[i]) / (axis[i + 1] - axis[i]) * (values[i + 1] - values[i])


@dataclass(frozen=True)
class Pin:
    """A pin: capacitance in fF; curves by edge (rise, fall), means over inputs: delays in ps, energies in fJ."""

    output: bool
    capacitance: float
    function: str
    delays: dict[str, list[Curve]]
    energies: dict[str, list[Curve]]

    def delay(self, edge: str, load: float) -> int:
        """The mean over the inputs, in whole ps, at least one."""
        return max(1, round(_mean([curve.at(load) for curve in self.delays[edge]])))

    def energy(self, edge: str, load: float) -> float:
        return _mean([curve.at(load) for curve in self.energies[edge]])


@dataclass(frozen=True)
class Cell:
    """A cell; a register has the pins `data` and `clock`, and `state` names its stored value in functions."""

    area: float
    pins: dict[str, Pin]
    data: str = ""
    clock: str = ""
    state: str = ""

    def table(self, pin: str, inputs: list[str]) -> int:
        """The truth table of an output: bit i is its value where the inputs spell i, the first in the lowest bit."""
        code = compile(_expression(self.pins[pin].function), "a cell's function", "eval")
        bits = 0
        for i, values in enumerate(itertools.product((0, 1), repeat=len(inputs))):
            known = dict(zip(reversed(inputs), values, strict=True))
            bits |= (eval(code, {"__builtins__": {}}, known) & 1) << i
        return bits


def _expression(function: str) -> str:
    """A function of Liberty as one of Python whose lowest bit counts: a space is an AND, a quote negates."""
    if not _FUNCTION.fullmatch(function):
        raise LapisError(f"the function {function!r} of a cell has signs other than names, brackets and !'&|*+^")
    text = re.sub(r"(\w+)\s*'", r"(!\1)", function.strip())
    text = re.sub(r"(?<=[\w)])\s+(?=[\w(!])", "&", text)
    return text.replace("*", "&").replace("+", "|").replace("!", "~").replace(" ", "")


@dataclass(frozen=True)
class Library:
    """The cells of a Liberty file that have a function, and its voltage."""

    name: str
    path: Path
    voltage: float
    cells: dict[str, Cell]


def load(path: Path) -> Library:
    """Read a Liberty file."""
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise LapisError(f"{path} cannot be read ({error.strerror}); give a Liberty file (.lib)") from error
    tree = parse(text, str(path))
    amount, unit = [*tree.get("capacitive_load_unit", "1,ff").split(","), "ff"][:2]
    farads = float(amount) * _CAPACITANCES_FF.get(unit.strip().lower(), 1.0)
    picoseconds = _TIMES_PS.get(tree.get("time_unit", "1ns"), 1000.0)
    templates = {
        group.names[0]: group for kind in ("lu_table_template", "power_lut_template") for group in tree.all(kind)
    }
    units = _Units(picoseconds, farads, templates)
    cells = {group.names[0]: _cell(group, units) for group in tree.all("cell")}
    usable = {name: cell for name, cell in cells.items() if any(pin.function for pin in cell.pins.values())}
    if not any(cell.data for cell in usable.values()):
        raise LapisError(f"{path} has no flip-flop among its {len(usable)} cells; a circuit needs one")
    return Library(tree.names[0], path, float(tree.get("nom_voltage", "1")), usable)


@dataclass(frozen=True)
class _Units:
    """What a library's numbers mean: its units in ps and fF, and the axes that its tables share."""

    picoseconds: float
    farads: float
    templates: dict[str, Group]


def _cell(group: Group, units: _Units) -> Cell:
    register = next(group.all("ff"), None)
    pins = {pin.names[0]: _pin(pin, units) for pin in group.all("pin")}
    area = float(group.get("area", "0"))
    if register is None:
        return Cell(area, pins)
    return Cell(area, pins, register.get("next_state"), register.get("clocked_on"), register.names[0])


def _pin(group: Group, units: _Units) -> Pin:
    delays: dict[str, list[Curve]] = {"rise": [], "fall": []}
    energies: dict[str, list[Curve]] = {"rise": [], "fall": []}
    for timing in group.all("timing"):
        if timing.get("timing_type", "combinational") in ("combinational", "rising_edge"):
            for edge in delays:
                delays[edge] += [_curve(one, units, units.picoseconds) for one in timing.all(f"cell_{edge}")]
    # Energies are in units of capacitance times volt squared: fF V**2 = fJ.
    for power in group.all("internal_power"):
        for edge in energies:
            energies[edge] += [_curve(one, units, units.farads) for one in power.all(f"{edge}_power")]
    return Pin(
        group.get("direction") == "output", float(group.get("capacitance", "0")) * units.farads, group.get("function"),
        {edge: _merged(curves) for edge, curves in delays.items()},
        {edge: _merged(curves) for edge, curves in energies.items()},
    )  # fmt: skip


def _curve(group: Group, units: _Units, unit: float) -> Curve:
    """A table over slope and load, interpolated at `SLEW_PS`."""
    template = units.templates.get(group.names[0] if group.names else "", Group("", []))

    def numbers(name: str, scale: float) -> tuple[float, ...]:
        text = group.get(name) or template.get(name)
        return tuple(float(x) * scale for x in re.split(r"[,\s]+", text) if x)

    slews, found = numbers("index_1", units.picoseconds), numbers("index_2", units.farads)
    values = numbers("values", unit)
    width = len(found) if len(values) > len(slews) and found else 1
    columns = [values[i::width] for i in range(width)]
    return Curve(found[:width], tuple(_between(slews, column, SLEW_PS) for column in columns))


def _merged(curves: list[Curve]) -> list[Curve]:
    """Curves over the same loads as one, their mean."""
    groups: dict[tuple[float, ...], list[Curve]] = {}
    for curve in curves:
        groups.setdefault(curve.loads, []).append(curve)
    if len(groups) != 1:
        return curves
    ((axis, same),) = groups.items()
    return [Curve(axis, tuple(_mean(list(column)) for column in zip(*(one.values for one in same), strict=True)))]


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
