"""The spike simulator in C beside the one in numpy that defines it: the same image, in turns, on one thread.

python -m benchmarks.simulator --model lapis_tiny.cifar10
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from benchmarks.common import (
    Several,
    deliver,
    machine,
    main,
    output_options,
    quartiles,
    ratio_quartiles,
    require_kernels,
    rounds_option,
    take_turns,
)
from benchmarks.networks import SHAPES, random_images, sparse_network
from lapis import models
from lapis.data.packaged import packaged_images
from lapis.deploy.network import Network
from lapis.deploy.simulate import Simulated, Simulator
from lapis.deploy.simulate_native import NativeSimulator
from lapis.errors import LapisError
from lapis.preprocess import Pixels

# How many times longer than ours numpy should take.
TARGET = 8.0
OURS, NUMPY = "C", "numpy"


class Subject(NamedTuple):
    """A network and the image that it is timed on, (1, S, S, 3)."""

    name: str
    network: Network
    image: Pixels

    @classmethod
    def of_shape(cls, shape: str) -> Subject:
        """A network that fires as the paper's figures imply."""
        network = sparse_network(SHAPES[shape])
        return cls(shape, network, random_images(network.config, 1))

    @classmethod
    def of_model(cls, model: str) -> Subject:
        """A model on the first packaged picture."""
        network = models.load(model).network
        return cls(model, network, network.preprocess.resize(packaged_images().pixels[0])[None])


@dataclass(frozen=True)
class SimulatorRow:
    """One simulator and one network; `operations` are the synapses that spikes crossed in one image."""

    network: str
    simulator: str
    ms_per_image: float
    cpu_ms_per_image: float
    times_ours: float
    target: float | None
    spikes: int
    operations: int


def simulator_rows(subjects: list[Subject], rounds: int) -> Iterator[SimulatorRow]:
    """Both simulators on each network, all in turns; the results of the two must be equal."""
    turns: dict[tuple[str, str], Callable[[], tuple[float, float]]] = {}
    answers = {}
    for subject in subjects:
        pair = {OURS: NativeSimulator(subject.network), NUMPY: Simulator(subject.network)}
        # The first run computes thresholds and lays out weights, which all later images share.
        answers[subject.name] = _checked(subject, *(one.run(subject.image) for one in pair.values()))
        turns |= {(subject.name, way): partial(_timed, one, subject) for way, one in pair.items()}
    times = take_turns(turns, rounds)
    walls = {key: [wall for wall, _ in taken] for key, taken in times.items()}
    for (name, simulator), taken in times.items():
        key, events = (name, simulator), answers[name].events
        yield SimulatorRow(
            network=name,
            simulator=simulator,
            ms_per_image=round(quartiles(walls[key])[1] * 1e3, 3),
            cpu_ms_per_image=round(quartiles([cpu for _, cpu in taken])[1] * 1e3, 3),
            times_ours=round(ratio_quartiles(walls[key], walls[name, OURS])[1], 3),
            target=TARGET if simulator == NUMPY else None,
            spikes=sum(events.spikes.values()),
            operations=sum(events.operations.values()),
        )


def _timed(simulator: Simulator, subject: Subject) -> tuple[float, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    simulator.run(subject.image)
    return time.perf_counter() - wall, time.process_time() - cpu


def _checked(subject: Subject, ours: Simulated, defining: Simulated) -> Simulated:
    same = all((ours.trace[key] == defining.trace[key]).all() for key in defining.trace)
    if not same or (ours.logits != defining.logits).any() or ours.events != defining.events:
        raise LapisError(f"the simulator in C differs from numpy's on the network {subject.name}; do not use its times")
    return defining


@click.command()
@click.option(
    "--shape", "shapes", type=Several(click.Choice(list(SHAPES))), default="tiny", show_default=True,
    help="small: ViT-S/16 at 224 pixels, half a minute per round; tiny: lapis_tiny at 96.",
)  # fmt: skip
@click.option("--model", "names", type=Several(click.STRING), help="Time these models on a packaged picture instead.")
@rounds_option(5)
@output_options
def command(
    shapes: tuple[str, ...], names: tuple[str, ...] | None, rounds: int, as_json: bool, out: Path | None
) -> None:
    """Time the spike simulator in C and in numpy on one image and one thread, in turns.

    Their spikes, codes, answers and counts are compared first, and times are given only if all are equal.

    \b
    Example:
      python -m benchmarks.simulator --model lapis_tiny.cifar10 --rounds 9
    """
    require_kernels()
    subjects = [Subject.of_model(name) for name in names or ()] or [Subject.of_shape(shape) for shape in shapes]
    deliver("simulator", machine(), list(simulator_rows(subjects, rounds)), as_json, out)


if __name__ == "__main__":
    sys.exit(main(command))
