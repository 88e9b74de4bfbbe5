"""The data of the explain page: one run of a network on one image, with the codes of all measuring points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from lapis.codes import check_tau
from lapis.config import LapisConfig
from lapis.energy.counts import check_tally
from lapis.errors import LapisError
from lapis.relations import names, rule_of
from lapis.report.page.evidence import Evidence
from lapis.trace import Tally, Trace


class LeakFactors(NamedTuple):
    """beta = mantissa 2**-(32 + exponent), (L, H) each: the integer leak of a deployed network."""

    mantissa: npt.NDArray[np.uint32]
    exponent: npt.NDArray[np.int32]


class ReadoutScale(NamedTuple):
    """code = floor(y scale + shift), y the mixed value codes; (L,) each."""

    scale: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]


class Attention(NamedTuple):
    """The constants from which the page computes attention: tau (L, H), and where the network has them the others.

    delays (L, E, H) by position offset, where positions are relative. leak: where affinities are integers.
    """

    tau: npt.NDArray[np.float64]
    delays: npt.NDArray[np.int64] | None = None
    leak: LeakFactors | None = None
    readout: ReadoutScale | None = None


@dataclass(frozen=True)
class Explained:
    """One run: the image (S, S, 3) as the network took it, its logits (classes,) and the trace of a batch of one.

    tau, delays, leak and readout are those of `Attention`.
    evidence: which patches raised or lowered the top classes, where it was asked for.
    """

    config: LapisConfig
    image: npt.NDArray[np.uint8]
    class_names: tuple[str, ...]
    logits: npt.NDArray[np.float64]
    trace: Trace
    tau: npt.NDArray[np.float64]
    delays: npt.NDArray[np.int64] | None = None
    leak: LeakFactors | None = None
    readout: ReadoutScale | None = None
    evidence: Evidence | None = None
    model: str = ""
    executor: str = ""
    picture: str = ""
    label: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        config = self.config
        check_explainable(config)
        size = config.image_size
        if self.image.dtype != np.uint8 or self.image.shape != (size, size, 3):
            raise LapisError(
                f"the image is {self.image.shape} of {self.image.dtype}; the network takes ({size}, {size}, 3) of bytes"
            )
        if self.logits.shape != (config.classes,) or not np.isfinite(self.logits).all():
            raise LapisError(f"logits of shape {self.logits.shape}; a run gives {config.classes} finite numbers")
        if self.class_names and len(self.class_names) != config.classes:
            raise LapisError(f"{len(self.class_names)} class names for {config.classes} classes")
        heads = (config.depth, config.heads)
        if check_tau(self.tau).shape != heads:
            raise LapisError(f"tau has shape {self.tau.shape}; every block and head has one: {heads}")
        if config.relative_position != (self.delays is not None):
            raise LapisError("delays belong to networks with relative positions, and only to those")
        for key in self.trace:
            if self.trace[key].shape[:2] != (1, config.tokens):
                raise LapisError(
                    f"block {key[0]}, point {key[1]!r} holds {self.trace[key].shape}; "
                    f"the page takes one image of {config.tokens} tokens"
                )
        if self.evidence is not None:
            self._check_evidence(self.evidence)
        check_tally(config, self.tally)

    def _check_evidence(self, evidence: Evidence) -> None:
        classes, tiles = self.config.classes, -(-self.config.grid // evidence.side)
        if max(evidence.classes) >= classes:
            raise LapisError(f"evidence for class {max(evidence.classes)}; the network has {classes} classes")
        if evidence.values.shape != (len(evidence.classes), tiles, tiles):
            raise LapisError(
                f"evidence of shape {evidence.values.shape}; "
                f"{len(evidence.classes)} classes on {tiles} x {tiles} tiles are needed"
            )

    @property
    def attention(self) -> Attention:
        return Attention(self.tau, self.delays, self.leak, self.readout)

    @property
    def tally(self) -> Tally:
        """What fired in this run."""
        tally = Tally()
        tally.add(self.trace)
        return tally


def check_explainable(config: LapisConfig) -> None:
    """Raise an error for a network whose affinities are not a leak for as long as two first spikes are apart."""
    if not config.quantize:
        raise LapisError("a dense network fires no spikes; explain a Lapis network (quantize=True)")
    if rule_of(config.relation).stored != "leak":
        possible = [name for name in names() if rule_of(name).stored == "leak"]
        raise LapisError(
            f"relation={config.relation!r} has no page: it shows how a membrane leaks between two first spikes, which "
            f"is what relation={' or '.join(possible)} computes; lapis evaluate and lapis energy show the accuracy, "
            "activity and energy of this network"
        )
