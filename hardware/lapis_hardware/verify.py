"""Compare the circuit with the integer model on rows of real images, over every head of a network."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from pathlib import Path

from lapis import LapisError
from lapis.deploy import Network, watch
from lapis.preprocess import Pixels
from lapis_hardware import tools
from lapis_hardware.folder import write_design, write_vectors
from lapis_hardware.head import heads_of
from lapis_hardware.rows import rows_of
from lapis_hardware.simulate import Comparison, build, compare

# A row takes Verilator milliseconds and Icarus, the second opinion, seconds.
SECOND_OPINION_ROWS = 4
DEFAULT_ROWS = 10_000
SIMULATORS = ("verilator", "icarus")


@dataclass(frozen=True)
class Verified:
    """What one simulator compared: rows and heads, and the counts of every form and quantity."""

    simulator: str
    rows: int
    heads: int
    comparisons: tuple[Comparison, ...]

    @property
    def different(self) -> int:
        return sum(one.different for one in self.comparisons)


def images_for(network: Network, rows: int) -> int:
    """How many images give so many rows, a row being one query of one head."""
    config = network.config
    return -(-rows // (config.depth * config.heads * config.tokens))


def verify(network: Network, images: Pixels, folder: Path, simulator: str, rows: int) -> Verified:
    """Build the testbench once and run it with the tables and vectors of every head, which share the rows evenly."""
    config = network.config
    trace = watch(network, images).trace
    each = -(-rows // (config.depth * config.heads))
    command: list[str] = []
    found: list[list[Comparison]] = []
    left = rows
    for circuit in heads_of(network):
        if left <= 0:
            break
        vectors = rows_of(network, trace, circuit.block, circuit.head)
        place = folder / f"block{circuit.block}_head{circuit.head}"
        place.mkdir(exist_ok=True)
        if not command:
            write_design(folder, circuit, vectors)
            command = build(folder, simulator)
        write_vectors(place, circuit, vectors)
        found.append(compare(command, place, min(each, left)))
        left -= each
    return Verified(simulator, rows - max(left, 0), len(found), _added(found))


def second_opinion(network: Network, images: Pixels, folder: Path) -> Verified | None:
    """The first rows in Icarus, None where it is not installed."""
    if not tools.has("icarus"):
        return None
    return verify(network, images[:1], folder, "icarus", SECOND_OPINION_ROWS)


def check_rows(rows: int, available: int, network: Network) -> int:
    """The images that so many rows take; an error where there are not enough."""
    needed = images_for(network, rows)
    if needed > available:
        most = available * network.config.depth * network.config.heads * network.config.tokens
        raise LapisError(f"{rows} rows take {needed} images, and {available} are packaged; ask for at most {most} rows")
    return needed


def _added(found: list[list[Comparison]]) -> tuple[Comparison, ...]:
    """Counts of the same form and quantity, summed over heads."""
    totals: dict[tuple[str, str], Comparison] = {}
    for one in itertools.chain.from_iterable(found):
        key = one.form, one.quantity
        before = totals.get(key, replace(one, compared=0, different=0))
        totals[key] = replace(one, compared=before.compared + one.compared, different=before.different + one.different)
    return tuple(totals.values())
