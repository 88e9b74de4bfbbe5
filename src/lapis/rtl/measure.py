"""Cells, area, critical path and energy of each lane, in the cells of a library."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path

import numpy as np

from lapis.deploy.network import Network
from lapis.energy.paper import solve_large
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.rtl.folder import write_modules, write_tables
from lapis.rtl.head import Head, head_of
from lapis.rtl.lanes import Lane, Run, lanes_of
from lapis.rtl.liberty import Library, load
from lapis.rtl.netlist import Netlist, critical_path_ps, energy_fj, simulate, synthesize
from lapis.rtl.rows import watch
from lapis.rtl.stimuli import Stimuli, stimuli_of

PACKAGED = "sg13g2.lib"


@dataclass(frozen=True)
class Measured:
    """One lane: energies are per unit of its work, with glitches (timed) and without (settled)."""

    name: str
    module: str
    unit: str
    about: str
    cells: int
    area_um2: float
    path_ps: int
    timed_pj: float
    settled_pj: float


def paper_activity() -> float:
    """The share of q, k and v that fires in the paper's large model, as its tables imply."""
    return next(one.value for one in solve_large().solved if one.name == "rho_qkv")


def packaged_library() -> Library:
    """The library that comes with the package: IHP SG13G2, 130 nm, typical, reduced to plain gates."""
    with as_file(files("lapis") / "rtl" / "cells" / PACKAGED) as path:
        return load(path)


def prepare(folder: Path, network: Network, images: Pixels, thinned: float | None = None) -> tuple[Head, Stimuli]:
    """Write the modules of a network and take real codes for them.

    With a share `thinned`, codes have no OFF neurons and that share of them fires, as in the paper.
    """
    head = head_of(network)
    stimuli = stimuli_of(network, watch(network, images), len(images))
    if thinned is not None:
        head, stimuli = head.without_off_neurons(), stimuli.unsigned().thinned(thinned)
    write_modules(folder, head.parameters)
    write_tables(folder, head)
    return head, stimuli


def measure(
    folder: Path, head: Head, stimuli: Stimuli, library: Library, only: Collection[str] = ()
) -> Iterator[Measured]:
    """Synthesize and run the lanes of a prepared folder, one after the other; `only` names some of them."""
    for lane in lanes_of(head.parameters):
        if not only or lane.name in only:
            netlist = synthesize(folder, lane.module, lane.parameters, library)
            yield measured(lane, netlist, lane.drive(stimuli, head.parameters))


def measured(lane: Lane, netlist: Netlist, run: Run) -> Measured:
    """Run one lane and count; a lane that answers wrongly is not measured."""
    inputs = {name: run.inputs[name] for name in netlist.inputs if name in run.inputs}
    found = simulate(netlist, inputs)
    for port, (ends, expected) in run.answers.items():
        wrong = int((found.outputs[port][ends] != expected).any(axis=1).sum())
        if wrong:
            raise LapisError(f"the gates of {lane.name} answer wrongly in {wrong} of {len(expected)} cases at {port}")
    cycles = len(next(iter(inputs.values()))) + 1
    timed, settled = (energy_fj(netlist, counts, cycles) / run.work / 1000 for counts in (found.timed, found.settled))
    return Measured(
        lane.name, lane.module, lane.unit, lane.about, len(netlist.cells), round(netlist.area, 1),
        critical_path_ps(netlist), float(np.round(timed, 4)), float(np.round(settled, 4)),
    )  # fmt: skip
