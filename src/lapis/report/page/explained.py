"""The data of the explain page: one run of a network on one image, with the codes of all measuring points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lapis.config import LapisConfig
from lapis.errors import LapisError
from lapis.report.page.evidence import Evidence
from lapis.trace import Tally, Trace


class Scaled(NamedTuple):
    """mantissa 2**-(32 + exponent), as a deployed network stores leak factors and affinities."""

    mantissa: npt.NDArray[np.uint32]
    exponent: npt.NDArray[np.int32]


class ReadoutScale(NamedTuple):
    """code = floor(y scale + shift), y the mixed value codes; (L,) each."""

    scale: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]


class AttentionSource(NamedTuple):
    """Where the page takes attention from: time constants, stored affinities, or weights recorded in the run.

    tau (L, H), with the integer leak factors (L, H) of a deployed network and delays (L, E, H) by position offset;
    stored (L, H, S): the affinity at every distance; recorded: the weights (H, N, N) of each block, None where its rule
    gives none to pairs of tokens.
    """

    tau: npt.NDArray[np.float64] | None = None
    delays: npt.NDArray[np.int64] | None = None
    leak: Scaled | None = None
    stored: Scaled | None = None
    recorded: tuple[npt.NDArray[np.float64] | None, ...] | None = None
    readout: ReadoutScale | None = None


@dataclass(frozen=True)
class Explained:
    """One run: the image (S, S, 3) as the network took it, its logits (classes,) and the trace of a batch of one.

    evidence: which patches raised or lowered the top classes, where it was asked for. min_score: the score below which
    the image shows none of the classes, if the network knows one.
    """

    config: LapisConfig
    image: npt.NDArray[np.uint8]
    class_names: tuple[str, ...]
    logits: npt.NDArray[np.float64]
    trace: Trace
    attention: AttentionSource
    evidence: Evidence | None = None
    min_score: float | None = None
    model: str = ""
    executor: str = ""
    picture: str = ""
    label: str = ""

    @property
    def answer(self) -> str:
        """The likeliest class."""
        best = int(self.logits.argmax())
        return self.class_names[best] if self.class_names else f"class {best}"

    @property
    def tally(self) -> Tally:
        """What fired in this run."""
        tally = Tally()
        tally.add(self.trace)
        return tally


def check_explainable(config: LapisConfig) -> None:
    """Raise an error for a network that has no spikes to show."""
    if not config.quantize:
        raise LapisError("a dense network fires no spikes; explain a Lapis network (quantize=True)")
