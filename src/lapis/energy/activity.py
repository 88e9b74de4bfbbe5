"""Activities: the share of values that spike at each block and measuring point, and the files that hold them.

A tally is what Lapis counted. A plain file is what anybody may write: JSON with a share from 0 to 1, or one share per
block, for each measuring point by its name; or a bare list of seven shares in the order of `POINTS`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lapis._util.files import read_json, write_text
from lapis.config import LapisConfig, nearest
from lapis.energy.counts import check_points, check_tally
from lapis.energy.fields import COUNT, LIST, SHARE, WHOLE, among, checked, read_fields
from lapis.errors import LapisError
from lapis.trace import POINTS, Point, Tally

_FILE_KIND = "lapis tally"
_FILE_VERSION = 1


@dataclass(frozen=True)
class Activities:
    """rho[block, point] in 0..1: the share of values that spike in a window; a signed value is two neurons."""

    rates: Mapping[tuple[int, Point], float]

    @classmethod
    def uniform(cls, config: LapisConfig, rates: Mapping[Point, float | Sequence[float]]) -> Activities:
        """One share for every block, or a list with one share per block, at each point."""
        found: dict[tuple[int, Point], float] = {}
        for point, given in rates.items():
            if point not in POINTS:
                raise LapisError(
                    f"unknown measuring point {point!r}; {nearest(str(point), POINTS)}use {', '.join(POINTS)}"
                )
            shares = given if isinstance(given, (list, tuple)) else [given] * config.depth
            if len(shares) != config.depth:
                raise LapisError(
                    f"activity {point} has {len(shares)} shares; give one number, or one for each of the "
                    f"{config.depth} blocks"
                )
            for block, share in enumerate(shares):
                found[block, point] = float(checked(share, SHARE, f"activity {point}"))
        check_points(config, found)
        return cls(found)

    @classmethod
    def measured(cls, config: LapisConfig, tally: Tally) -> Activities:
        """The activities that a tally counted, block by block."""
        check_tally(config, tally)
        return cls({key: tally.fired[key] / tally.neurons[key] for key in tally.fired})

    def at(self, block: int, point: Point) -> float:
        return self.rates[block, point]

    def mean(self, block: int, points: tuple[Point, ...]) -> float:
        """Mean activity over several points of one block, which must have equally many neurons."""
        return math.fsum(self.at(block, point) for point in points) / len(points)

    def over_blocks(self) -> dict[Point, float]:
        """Activity at every point, over all blocks."""
        found: dict[Point, list[float]] = {}
        for (_, point), rate in self.rates.items():
            found.setdefault(point, []).append(rate)
        return {point: math.fsum(found[point]) / len(found[point]) for point in POINTS if point in found}


def save_tally(path: str | Path, tally: Tally, config: LapisConfig | None = None) -> None:
    """Write a tally as JSON, with the configuration of the measured network if it is given."""
    write_text(Path(path), json.dumps(tally_to_dict(tally, config), indent=1) + "\n")


def tally_to_dict(tally: Tally, config: LapisConfig | None = None) -> dict[str, Any]:
    """A tally as a table for JSON: the content of its file."""
    points = [
        {"block": key[0], "point": key[1], "fired": tally.fired[key], "neurons": tally.neurons[key]}
        for key in sorted(tally.fired, key=lambda key: (key[0], POINTS.index(key[1])))
    ]
    return {
        "kind": _FILE_KIND,
        "version": _FILE_VERSION,
        "images": tally.images,
        "config": None if config is None else config.to_dict(),
        "points": points,
    }


def load_activities(path: str | Path, config: LapisConfig | None = None) -> tuple[Activities, LapisConfig, str]:
    """Activities from a plain file or a tally, their network, and where they come from.

    `config` is the network; without it the file must be a tally that names its own.
    """
    content = read_json(path)
    if isinstance(content, dict) and content.get("kind") == _FILE_KIND:
        tally, own = tally_from_dict(content, str(path))
        config = config or own
        if config is None:
            raise LapisError(f"{path} does not say which network it was measured on; give a preset as MODEL")
        return Activities.measured(config, tally), config, f"{tally.images} images, counted in {path}"
    if config is None:
        raise LapisError(f"{path} holds shares and no network; give a preset, or a trained or packed model, as MODEL")
    if isinstance(content, list):
        if len(content) != len(POINTS):
            raise LapisError(f"{path} lists {len(content)} shares; it needs {len(POINTS)}: {', '.join(POINTS)}")
        content = dict(zip(POINTS, content, strict=True))
    if not isinstance(content, dict):
        raise LapisError(
            f"{path} holds {type(content).__name__}; give a share of values from 0 to 1, or one per block, for each of "
            f"{', '.join(POINTS)}, or a list of these seven shares"
        )
    try:
        return Activities.uniform(config, content), config, str(path)
    except LapisError as error:
        raise LapisError(f"{path}: {error}") from error


def load_tally(path: str | Path) -> tuple[Tally, LapisConfig | None]:
    """Read what `save_tally` wrote; every count is checked."""
    return tally_from_dict(read_json(path), str(path))


def tally_from_dict(content: Any, path: str) -> tuple[Tally, LapisConfig | None]:
    """The inverse of `tally_to_dict`; every count is checked, and errors name the file at `path`."""
    if not isinstance(content, dict) or content.get("kind") != _FILE_KIND or content.get("version") != _FILE_VERSION:
        raise LapisError(f"{path} is not a {_FILE_KIND} of version {_FILE_VERSION}; `save_tally` writes them")
    entries = checked(content.get("points"), LIST, f"{path}: points")
    tally = Tally(images=checked(content.get("images"), COUNT, f"{path}: images"))
    needed = {"block": COUNT, "point": among(POINTS), "fired": COUNT, "neurons": WHOLE}
    for number, entry in enumerate(entries):
        where = f"{path}: points[{number}]"
        read_fields(entry, needed, where)
        key, fired, seen = (entry["block"], entry["point"]), entry["fired"], entry["neurons"]
        if key in tally.fired:
            raise LapisError(f"{where} repeats block {key[0]}, point {key[1]!r}")
        if fired > seen:
            raise LapisError(f"{where}: {fired} of {seen} neurons fired; a neuron fires at most once")
        tally.fired[key], tally.neurons[key] = fired, seen
    fields = content.get("config")
    return tally, None if fields is None else LapisConfig.from_dict(fields)
