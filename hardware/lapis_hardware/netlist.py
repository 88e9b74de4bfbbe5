"""A synthesized module: cells and nets from Yosys, their delays, and the toggles and energy of a run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lapis import LapisError
from lapis_hardware import tools
from lapis_hardware.gates import GATE_INPUTS, Gates
from lapis_hardware.liberty import Cell, Library

CLOCK = "clk"
# The load of an output port, in fF: about one gate.
PORT_FF = 2.0
# Yosys' own script takes minutes on adder trees; this one takes seconds and maps as well.
ABC = "strash; balance; rewrite -l; refactor -l; balance; rewrite -lz; balance; map -B 0.9; topo; buffer -c; topo\n"
# Net 0 is always 0 and net 1 always 1; Yosys numbers its nets from 2.
CONSTANTS = {"0": 0, "x": 0, "1": 1}

Bits = npt.NDArray[np.uint8]
Counts = npt.NDArray[np.int64]


class CellInstance(NamedTuple):
    """One cell of a netlist: its kind, and the net at each pin."""

    kind: str
    nets: dict[str, int]


@dataclass(frozen=True)
class Netlist:
    """Cells of a library, and the nets of each port, from the lowest bit."""

    library: Library
    cells: list[CellInstance]
    inputs: dict[str, list[int]]
    outputs: dict[str, list[int]]

    @property
    def area(self) -> float:
        """In the library's unit, square micrometres."""
        return sum(self.library.cells[cell.kind].area for cell in self.cells)

    @property
    def nets(self) -> int:
        ports = [net for bits in (*self.inputs.values(), *self.outputs.values()) for net in bits]
        return 1 + max([1, *ports, *(net for cell in self.cells for net in cell.nets.values())])


def synthesize(folder: Path, module: str, parameters: dict[str, int], library: Library) -> Netlist:
    """Map a module of a design folder to the cells of a library."""
    chosen = "".join(f"chparam -set {name} {value} {module}\n" for name, value in parameters.items())
    sources = " ".join(sorted(path.name for path in folder.glob("*.sv") if not path.name.startswith("bench")))
    liberty = library.path.resolve()
    (folder / "map.abc").write_text(ABC)
    (folder / "synthesis.ys").write_text(
        f"read_verilog -sv {sources}\n{chosen}hierarchy -top {module}\nsynth -noabc -flatten -top {module}\n"
        f"dfflibmap -liberty {liberty}\nabc -liberty {liberty} -script map.abc\nopt_clean -purge\nrename -top top\n"
        f"write_json netlist.json\n"
    )
    tools.run_yosys(folder / "synthesis.ys", folder)
    return _read(json.loads((folder / "netlist.json").read_text())["modules"]["top"], library)


def _read(module: dict[str, Any], library: Library) -> Netlist:
    cells = []
    for cell in module["cells"].values():
        if cell["type"] not in library.cells:
            raise LapisError(f"synthesis left a {cell['type']}, for which {library.path} has no usable cell")
        cells.append(
            CellInstance(cell["type"], {pin: _net(bits[0]) for pin, bits in cell["connections"].items() if bits})
        )
    ports = {name: (port["direction"], [_net(bit) for bit in port["bits"]]) for name, port in module["ports"].items()}
    return Netlist(
        library,
        cells,
        {name: bits for name, (way, bits) in ports.items() if way == "input"},
        {name: bits for name, (way, bits) in ports.items() if way == "output"},
    )


def _net(bit: int | str) -> int:
    return bit if isinstance(bit, int) else CONSTANTS[bit]


def loads(netlist: Netlist) -> npt.NDArray[np.float64]:
    """fF that each net drives: the pins on it, and its port. Wires are not counted."""
    found = np.zeros(netlist.nets)
    for cell in netlist.cells:
        for name, net in cell.nets.items():
            pin = netlist.library.cells[cell.kind].pins[name]
            if not pin.output:
                found[net] += pin.capacitance
    for bits in netlist.outputs.values():
        found[bits] += PORT_FF
    return found


def gates_of(netlist: Netlist) -> Gates:
    """Every output of a cell is a gate; a register is a state net, and gates that show it after their delays."""
    load, nets = loads(netlist), netlist.nets
    rows: list[tuple[list[int], int, int, int, int]] = []
    data, state = [], []
    for placed in netlist.cells:
        cell = netlist.library.cells[placed.kind]
        known = placed.nets
        if cell.data:
            if cell.data not in known:
                raise LapisError(f"{placed.kind} computes {cell.data!r} before it stores it; only plain flip-flops are")
            data.append(known[cell.data])
            state.append(nets)
            known = {cell.state: nets}
            nets += 1
        for pin, net in placed.nets.items():
            if cell.pins[pin].output:
                rows.append((*_gate(cell, pin, known), net, *_delays(cell, pin, float(load[net]))))
    return Gates(
        nets=nets,
        inputs=np.array([row[0] for row in rows], dtype=np.int32).reshape(-1, GATE_INPUTS),
        tables=np.array([row[1] for row in rows], dtype=np.uint64),
        outputs=np.array([row[2] for row in rows], dtype=np.int32),
        rise=np.array([row[3] for row in rows], dtype=np.int32),
        fall=np.array([row[4] for row in rows], dtype=np.int32),
        data=np.array(data, dtype=np.int32),
        state=np.array(state, dtype=np.int32),
    )


def _delays(cell: Cell, pin: str, load: float) -> tuple[int, int]:
    return cell.pins[pin].delay("rise", load), cell.pins[pin].delay("fall", load)


def _gate(cell: Cell, pin: str, known: dict[str, int]) -> tuple[list[int], int]:
    """Input nets and truth table of an output."""
    if cell.data:
        inverted = cell.pins[pin].function != cell.state
        return [known[cell.state]] + [0] * (GATE_INPUTS - 1), 0b01 if inverted else 0b10
    names = [name for name in known if not cell.pins[name].output]
    if len(names) > GATE_INPUTS:
        raise LapisError(f"a cell with {len(names)} inputs was used; at most {GATE_INPUTS} are possible")
    return [known[name] for name in names] + [0] * (GATE_INPUTS - len(names)), cell.table(pin, names)


class Toggles(NamedTuple):
    """Outputs of every cycle by port, and the rises and falls (nets, 2) of every net, with pulses and without."""

    outputs: dict[str, Bits]
    timed: Counts
    settled: Counts


def simulate(netlist: Netlist, stimuli: dict[str, Bits]) -> Toggles:
    """Clock a netlist through stimuli (cycles, bits) by port; the outputs of a cycle are those after its clock."""
    gates = gates_of(netlist)
    names = [name for name in netlist.inputs if name != CLOCK]
    missing = [name for name in names if stimuli[name].shape[1] != len(netlist.inputs[name])]
    assert not missing, f"stimuli of another width: {missing}"
    drive = np.array([net for name in names for net in netlist.inputs[name]], dtype=np.int32)
    rows = np.concatenate([stimuli[name] for name in names], axis=1).astype(np.uint8)
    # One more cycle shows the outputs of the last clock.
    values = np.ascontiguousarray(np.concatenate([rows, rows[-1:]]))
    watch = np.array([net for bits in netlist.outputs.values() for net in bits], dtype=np.int32)
    seen, timed, settled = gates.run(drive, values, watch)
    ends = np.cumsum([len(bits) for bits in netlist.outputs.values()])[:-1]
    outputs = dict(zip(netlist.outputs, np.split(seen[1:], ends, axis=1), strict=True))
    return Toggles(outputs, timed, settled)


def energy_fj(netlist: Netlist, counts: Counts, cycles: int) -> float:
    """Energy of a run: of every cell whose output toggles, of every net that is charged, of every clocked register."""
    load, half = loads(netlist), 0.5 * netlist.library.voltage**2
    clock = netlist.inputs.get(CLOCK, [-1])[0]
    total = 0.0
    for placed in netlist.cells:
        cell = netlist.library.cells[placed.kind]
        for name, net in placed.nets.items():
            pin = cell.pins[name]
            rises, falls = (cycles, cycles) if net == clock else (int(counts[net, 0]), int(counts[net, 1]))
            farads = float(load[net]) if pin.output else 0.0
            total += rises * pin.energy("rise", farads) + falls * pin.energy("fall", farads)
            total += (rises + falls) * half * (farads if pin.output else pin.capacitance if net == clock else 0.0)
    for name, bits in netlist.inputs.items():
        if name != CLOCK:
            total += sum(float(counts[net].sum()) * half * float(load[net]) for net in set(bits) if net > 1)
    return total


def critical_path_ps(netlist: Netlist) -> int:
    """The longest path between registers or ports, by the same delays of gates with which toggles are counted."""
    gates = gates_of(netlist)
    delay = np.maximum(gates.rise, gates.fall)
    driver = {int(net): gate for gate, net in enumerate(gates.outputs)}
    arrival: dict[int, int] = {}
    for start in driver:
        stack = [start]
        while stack:
            net = stack[-1]
            waiting = [int(one) for one in gates.inputs[driver[net]] if int(one) in driver and int(one) not in arrival]
            if waiting:
                stack += waiting
                continue
            stack.pop()
            before = [arrival.get(int(one), 0) for one in gates.inputs[driver[net]]]
            arrival[net] = max(before) + int(delay[driver[net]])
    return max(arrival.values(), default=0)
