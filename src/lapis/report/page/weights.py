"""What a rule did in a run, as the page holds it: weights rounded to integers with a step per row, and gates."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lapis.report.page.explained import Recorded

# The integers of a weight. Two bytes show what the network computed; one byte is enough for the colours of a map.
KINDS = ("<i2", "<i1")


class Rows(NamedTuple):
    """W_ij = step_i z_ij to the nearest integer z: steps (H, N), the largest weight of a row over the largest z."""

    steps: npt.NDArray[np.float32]
    integers: npt.NDArray[np.signedinteger[Any]]


def rounded(weights: npt.NDArray[np.float64], kind: str) -> Rows:
    """Weights (H, N, N) as integers of a kind of KINDS."""
    levels = np.iinfo(kind).max
    steps = (np.abs(weights).max(axis=-1) / levels).astype("<f4")
    integers = np.rint(weights / np.where(steps > 0, steps, 1)[..., None])
    return Rows(steps, np.clip(integers, -levels, levels).astype(kind))


def fitting_rows(recorded: Sequence[Recorded], room: int) -> dict[int, Rows]:
    """The rows of every block that has weights, in the finest kind that fits into so many characters, or the last."""
    for kind in KINDS:
        rows = {n: rounded(block.weights, kind) for n, block in enumerate(recorded) if block.weights is not None}
        if sum(packed_size(each) for each in rows.values()) <= room:
            break
    return rows


def packed_size(rows: Rows) -> int:
    """Characters of a page that the rows take."""
    return sum(len(_text(part)) for part in rows)


def weights_data(rows: dict[int, Rows], blocks: Sequence[int]) -> dict[str, Any] | None:
    """The rows of those of `blocks` that have any for the script, and whether any weight of the run lies below zero."""
    if not rows:
        return None
    kept = [block for block in blocks if block in rows]
    first = next(iter(rows.values()))
    steps, integers = (
        np.concatenate([first[n][:0].ravel(), *(rows[block][n].ravel() for block in kept)]) for n in (0, 1)
    )
    return {
        "blocks": kept,
        "weighing": list(rows),
        "levels": int(np.iinfo(integers.dtype).max),
        "signed": any(bool((each.integers < 0).any()) for each in rows.values()),
        "steps": _text(steps),
        "integers": _text(integers),
    }


def gates_data(recorded: Sequence[Recorded]) -> dict[str, Any]:
    """Block by block which tokens or channels pass, head by head, as text of 0 and 1."""
    return {
        str(block): {
            "of": "tokens" if each.gates.shape[1] > 1 else "channels",
            "open": ["".join("01"[int(passes)] for passes in head.ravel()) for head in each.gates],
        }
        for block, each in enumerate(recorded)
        if each.gates is not None
    }


def _text(array: npt.NDArray[Any]) -> str:
    return base64.b64encode(zlib.compress(array.tobytes())).decode()
