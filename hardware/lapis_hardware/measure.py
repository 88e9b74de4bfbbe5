"""Cells, area, critical path and energy of each lane, in the cells of a library."""

from __future__ import annotations

import atexit
import functools
import gzip
import shutil
import tempfile
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lapis import LapisError
from lapis.deploy import Network, watch
from lapis.preprocess import Pixels
from lapis_hardware.folder import write_modules, write_tables
from lapis_hardware.head import Head, head_of
from lapis_hardware.lanes import Lane, LaneRun, lanes_of
from lapis_hardware.liberty import Library, load
from lapis_hardware.netlist import Netlist, critical_path_ps, energy_fj, simulate, synthesize
from lapis_hardware.stimuli import Stimuli, stimuli_of

CELLS = Path(__file__).parent / "cells" / "sg13g2.lib.gz"
# The share of q, k and v that spike in the paper's large model, as the figures in its tables imply.
PAPER_SHARE = 0.388


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


@functools.cache
def packaged_library() -> Library:
    """The library beside this file: IHP SG13G2, 130 nm, typical, plain gates; synthesis reads it unpacked."""
    folder = Path(tempfile.mkdtemp(prefix="lapis_cells_"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / CELLS.stem
    file.write_bytes(gzip.decompress(CELLS.read_bytes()))
    return load(file)


def prepare(folder: Path, network: Network, images: Pixels, thinned: float | None = None) -> tuple[Head, Stimuli]:
    """Write the modules of a network and take real codes for them.

    With a share `thinned`, codes have no OFF neurons and that share of them fires, as in the paper.
    """
    head = head_of(network)
    stimuli = stimuli_of(network, watch(network, images).trace, len(images))
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


def measured(lane: Lane, netlist: Netlist, run: LaneRun) -> Measured:
    """LaneRun one lane and count; a lane that answers wrongly is not measured."""
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
