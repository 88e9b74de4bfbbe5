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
from lapis.relations import rule_of
from lapis.report.page.evidence import Evidence
from lapis.trace import Tally, Trace


class LeakFactors(NamedTuple):
    """beta = mantissa 2**-(32 + exponent), (L, H) each: the integer leak of a deployed network."""

    mantissa: npt.NDArray[np.uint32]
    exponent: npt.NDArray[np.int32]


class StoredAffinities(NamedTuple):
    """A = mantissa 2**-(32 + exponent) at every distance, (L, H, S) each: a deployed relation without a leak."""

    mantissa: npt.NDArray[np.uint32]
    exponent: npt.NDArray[np.int32]


class Recorded(NamedTuple):
    """What the rule of one block did in this run, where the page cannot compute it from codes.

    weights (H, N, N) of all pairs of query and key; or gates, 0 and 1, the tokens (H, N, 1) or channels (H, 1, C) that
    pass; or neither.
    """

    weights: npt.NDArray[np.float64] | None = None
    gates: npt.NDArray[np.bool_] | None = None


class ReadoutScale(NamedTuple):
    """code = floor(y scale + shift), y the mixed value codes; (L,) each."""

    scale: npt.NDArray[np.float64]
    shift: npt.NDArray[np.float64]


class Attention(NamedTuple):
    """Where the page takes attention from: time constants tau (L, H), stored affinities, or what each block recorded.

    delays (L, E, H) by position offset, where there is a leak and positions are relative. leak: where affinities are
    integers.
    """

    tau: npt.NDArray[np.float64] | None = None
    delays: npt.NDArray[np.int64] | None = None
    leak: LeakFactors | None = None
    stored: StoredAffinities | None = None
    recorded: tuple[Recorded, ...] | None = None
    readout: ReadoutScale | None = None


@dataclass(frozen=True)
class Explained:
    """One run: the image (S, S, 3) as the network took it, its logits (classes,) and the trace of a batch of one.

    tau, delays, leak, stored, recorded and readout are those of `Attention`.
    evidence: which patches raised or lowered the top classes, where it was asked for.
    """

    config: LapisConfig
    image: npt.NDArray[np.uint8]
    class_names: tuple[str, ...]
    logits: npt.NDArray[np.float64]
    trace: Trace
    tau: npt.NDArray[np.float64] | None = None
    delays: npt.NDArray[np.int64] | None = None
    leak: LeakFactors | None = None
    stored: StoredAffinities | None = None
    recorded: tuple[Recorded, ...] | None = None
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
        self._check_attention()
        for key in self.trace:
            if self.trace[key].shape[:2] != (1, config.tokens):
                raise LapisError(
                    f"block {key[0]}, point {key[1]!r} holds {self.trace[key].shape}; "
                    f"the page takes one image of {config.tokens} tokens"
                )
        if self.evidence is not None:
            self._check_evidence(self.evidence)
        check_tally(config, self.tally)

    def _check_attention(self) -> None:
        config, heads = self.config, (self.config.depth, self.config.heads)
        if sum(source is not None for source in (self.tau, self.stored, self.recorded)) != 1:
            raise LapisError("the page takes attention from tau, from stored affinities or from a record: give one")
        if (self.tau is not None) != (rule_of(config.relation).stored == "leak"):
            raise LapisError(f"tau belongs to relations that leak, and only to those; relation={config.relation!r}")
        if self.tau is not None:
            if check_tau(self.tau).shape != heads:
                raise LapisError(f"tau has shape {self.tau.shape}; every block and head has one: {heads}")
            if config.relative_position != (self.delays is not None):
                raise LapisError("delays belong to networks with relative positions, and only to those")
        if self.stored is not None and self.stored.mantissa.shape[:2] != heads:
            raise LapisError(f"stored affinities of shape {self.stored.mantissa.shape}; {heads} and distances needed")
        if self.recorded is not None:
            if len(self.recorded) != config.depth:
                raise LapisError(f"{len(self.recorded)} blocks were recorded; the network has {config.depth}")
            for block in self.recorded:
                self._check_recorded(block)

    def _check_recorded(self, block: Recorded) -> None:
        heads, tokens = self.config.heads, self.config.tokens
        weights, gates = block
        if weights is not None and (weights.shape != (heads, tokens, tokens) or not np.isfinite(weights).all()):
            raise LapisError(f"weights of shape {weights.shape}; ({heads}, {tokens}, {tokens}) finite ones are needed")
        if gates is not None and (
            gates.ndim != 3 or len(gates) != heads or (gates.shape[1] != 1 and gates.shape[1:] != (tokens, 1))
        ):
            raise LapisError(
                f"gates of shape {gates.shape}; ({heads}, {tokens}, 1) for tokens or ({heads}, 1, channels) are needed"
            )

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
        return Attention(self.tau, self.delays, self.leak, self.stored, self.recorded, self.readout)

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
