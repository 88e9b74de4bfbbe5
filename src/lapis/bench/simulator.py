"""The spike simulator in C beside the one in numpy that defines it: the same image, in turns, on one thread."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from lapis.bench.networks import SHAPES, random_images, sparse_network
from lapis.bench.runner import quartiles, ratio_quartiles, take_turns
from lapis.deploy.simulate import Simulator
from lapis.deploy.simulate_native import NativeSimulator
from lapis.errors import LapisError

# How many times longer than ours numpy should take.
TARGET = 8.0
OURS, NUMPY = "C", "numpy"


@dataclass(frozen=True)
class SimulatorRow:
    """One simulator at one shape; `operations` are the synapses that spikes crossed in one image."""

    shape: str
    simulator: str
    ms_per_image: float
    cpu_ms_per_image: float
    times_ours: float
    target: float | None
    spikes: int
    operations: int


def simulator_rows(shape: str, rounds: int) -> Iterator[SimulatorRow]:
    """Both simulators on one image of a network that fires as the paper's figures imply; results must be equal."""
    network = sparse_network(SHAPES[shape])
    image = random_images(network.config, 1)
    simulators = {OURS: NativeSimulator(network), NUMPY: Simulator(network)}
    # The first run computes thresholds and lays out weights, which all later images share.
    ours, defining = (simulator.run(image) for simulator in simulators.values())
    same = all((ours.trace[key] == defining.trace[key]).all() for key in defining.trace)
    if not same or (ours.logits != defining.logits).any() or ours.events != defining.events:
        raise LapisError(
            f"the simulator in C differs from numpy's on the network of shape {shape}; do not use its times"
        )

    def timed(simulator: Simulator) -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        simulator.run(image)
        return time.perf_counter() - wall, time.process_time() - cpu

    times = take_turns({name: partial(timed, one) for name, one in simulators.items()}, rounds)
    walls = {name: [wall for wall, _ in taken] for name, taken in times.items()}
    for name, taken in times.items():
        yield SimulatorRow(
            shape=shape,
            simulator=name,
            ms_per_image=round(quartiles(walls[name])[1] * 1e3, 3),
            cpu_ms_per_image=round(quartiles([cpu for _, cpu in taken])[1] * 1e3, 3),
            times_ours=round(ratio_quartiles(walls[name], walls[OURS])[1], 3),
            target=TARGET if name == NUMPY else None,
            spikes=sum(defining.events.spikes.values()),
            operations=sum(defining.events.operations.values()),
        )
