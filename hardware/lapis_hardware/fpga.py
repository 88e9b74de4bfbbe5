"""Cells and clock of a lane on an FPGA: Yosys maps it to an iCE40 HX8K, nextpnr places and routes it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from lapis import LapisError
from lapis_hardware import tools
from lapis_hardware.lanes import Lane

DEVICE = ("--hx8k", "--package", "ct256")
DEVICE_NAME = "iCE40 HX8K"
# A placement begins at random; this number makes it repeatable.
PLACEMENT_SEED = 1
_CELLS = re.compile(r"ICESTORM_LC:\s*(\d+)/")
_CLOCK = re.compile(r"Max frequency for clock\s+'[^']*':\s*([\d.]+) MHz")


@dataclass(frozen=True)
class PlacedLane:
    """Logic cells of the lane alone, and the clock that it reaches between registers."""

    lane: str
    cells: int
    clock_mhz: float


def place(folder: Path, lane: Lane) -> PlacedLane:
    """Place a lane of a written design. A lane has more wires than a package has pins, so a chain feeds it."""
    ports = _ports(folder, lane)
    (folder / "bench_fpga.sv").write_text(_wrapper(lane, ports))
    sources = " ".join(
        sorted(path.name for path in folder.glob("*.sv") if path.name not in ("bench.sv", "bench_form.sv"))
    )
    (folder / "fpga.ys").write_text(f"read_verilog -sv {sources}\nsynth_ice40 -top bench_fpga -json fpga.json\n")
    tools.run_yosys(folder / "fpga.ys", folder)
    printed = tools.run_nextpnr(
        [*DEVICE, "--json", "fpga.json", "--seed", str(PLACEMENT_SEED), "--quiet", "--log", "fpga.log"], folder
    )
    printed += (folder / "fpga.log").read_text()
    cells, clocks = _CELLS.findall(printed), _CLOCK.findall(printed)
    if not cells or not clocks:
        raise LapisError(f"nextpnr did not say how large or fast {lane.name} is: {printed[-500:].strip()}")
    chain = sum(width for way, width in ports.values() if way == "input") - 1
    return PlacedLane(lane.name, int(cells[-1]) - chain, float(clocks[-1]))


def _ports(folder: Path, lane: Lane) -> dict[str, tuple[str, int]]:
    """Direction and width of each port of a lane."""
    chosen = "".join(f"chparam -set {name} {value} {lane.module}\n" for name, value in lane.parameters.items())
    sources = " ".join(sorted(path.name for path in folder.glob("*.sv") if not path.name.startswith("bench")))
    (folder / "ports.ys").write_text(
        f"read_verilog -sv {sources}\n{chosen}hierarchy -top {lane.module}\nproc\nrename -top top\n"
        "write_json ports.json\n"
    )
    tools.run_yosys(folder / "ports.ys", folder)
    found = json.loads((folder / "ports.json").read_text())["modules"]["top"]["ports"]
    return {name: (port["direction"], len(port["bits"])) for name, port in found.items()}


def _wrapper(lane: Lane, ports: dict[str, tuple[str, int]]) -> str:
    """A module with one data pin: a chain of registers feeds the lane's inputs, one bit shows all its outputs."""
    inputs = {name: width for name, (way, width) in ports.items() if way == "input" and name != "clk"}
    outputs = {name: width for name, (way, width) in ports.items() if way == "output"}
    chosen = ", ".join(f".{name}({value})" for name, value in lane.parameters.items())
    at, connections = 0, [".clk(clk)"]
    for name, width in inputs.items():
        connections.append(f".{name}(chain[{at + width - 1}:{at}])")
        at += width
    connections += [f".{name}(out_{name})" for name in outputs]
    wires = "\n".join(f"  logic [{width - 1}:0] out_{name};" for name, width in outputs.items())
    shown = " ^ ".join(f"^out_{name}" for name in outputs)
    return (
        f"module bench_fpga (input logic clk, input logic data, output logic seen);\n"
        f"  logic [{at - 1}:0] chain;\n{wires}\n"
        f"  {lane.module} #({chosen}) lane ({', '.join(connections)});\n"
        f"  always_ff @(posedge clk) begin\n    chain <= {{chain[{at - 2}:0], data}};\n    seen <= {shown};\n  end\n"
        "endmodule\n"
    )
