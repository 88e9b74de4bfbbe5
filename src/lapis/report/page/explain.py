"""Explain any model on any image: one run with the codes of all measuring points, which are the data of the page.

A network that can be deployed runs in integers, without torch; others run as trained.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lapis import assets, models
from lapis.codes import pow2_exponent
from lapis.config import LapisConfig
from lapis.data.packaged import SAMPLE, named_image
from lapis.deploy import integer
from lapis.deploy.leak import time_constant
from lapis.deploy.network import Network, check_deployable
from lapis.errors import LapisError
from lapis.ops.integer_attention.reference import integer_attention
from lapis.preprocess import Pixels, read_image
from lapis.report.page.evidence import Evidence, by_occlusion
from lapis.runtime.session import NUMPY, Session
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


def explain(model: str | Path, image: str | Path, evidence: bool = True) -> Explained:
    """Run any model on an image file or `sample:N`: in its deployed form if it has one, else as in training.

    `evidence` asks which patches raised or lowered the top classes.
    """
    opened = models.load(model)
    pixels, label = open_image(image)
    details: dict[str, Any] = {
        "model": Path(model).name,
        "picture": Path(image).name,
        "label": label,
        "evidence": evidence,
        "min_score": assets.min_score(str(model)),
    }
    if opened.kind == "checkpoint":
        try:
            check_deployable(opened.config)
        except LapisError:
            network, prepare = opened.torch(), opened.preprocess
            from lapis.report.page.from_model import explain_model

            return explain_model(network, prepare.resize(pixels), prepare, opened.class_names, **details)
    return explain_network(opened.network, pixels, **details)


def open_image(image: str | Path) -> tuple[Pixels, str]:
    """Pixels (height, width, 3) and, for a packaged image, its label."""
    return named_image(str(image)) if str(image).startswith(SAMPLE) else (read_image(image), "")


def uncropped(network: Network) -> Session:
    """A session that takes prepared pixels as they are, where the network's own would crop them again."""
    return Session(replace(network, preprocess=replace(network.preprocess, crop=1.0)))


def explain_network(network: Network, image: Pixels, evidence: bool = True, **details: Any) -> Explained:
    """Run a deployed network on one image of any size and record all codes.

    `evidence` asks for the patches that raised or lowered the top classes, which takes one run per tile of them.
    """
    check_explainable(network.config)
    pixels = network.preprocess.resize(image)
    session = uncropped(network)
    logits, trace = session.watch(pixels[None])
    how = "the integer model in numpy" if session.executor == NUMPY else f"the native engine ({session.executor})"
    found = by_occlusion(session.run, pixels, logits[0], network.config.patch_size) if evidence else None
    answer, attention = np.asarray(logits[0], dtype=np.float64), attention_of(network)
    if network.compared_by == "dot":
        recorded = tuple(_recorded(network, block, trace) for block in range(network.config.depth))
        attention = AttentionSource(recorded=recorded, readout=attention.readout)
    return Explained(
        network.config, pixels, network.class_names, answer, trace, attention, found, executor=how, **details
    )


def _recorded(network: Network, block: int, trace: Trace) -> npt.NDArray[np.float64]:
    """The weights (H, N, N) of a block on one image: what it makes of values that are one for a single token each."""
    config = network.config
    q, k = (integer.split_heads(trace[block, point], config.heads) for point in ("q", "k"))
    ones = np.broadcast_to(np.eye(config.tokens, dtype=np.int8), (1, config.heads, config.tokens, config.tokens))
    affinity, mass = integer_attention(q, k, ones, network.tables[block], None, network.compared_by)
    return np.asarray(np.ldexp(affinity[0].astype(np.float64), -pow2_exponent(mass[0])[..., None]))


def attention_of(network: Network) -> AttentionSource:
    """The constants of a deployed network's attention, as the page takes them."""
    blocks = network.blocks
    readout = ReadoutScale(
        np.array([float(block.readout.scale) for block in blocks]),
        np.array([float(block.readout.shift) for block in blocks]),
    )
    tables = [block.affinity for block in blocks if block.affinity is not None]
    leaks = [block.leak for block in blocks if block.leak is not None]
    numbers = Scaled(*(np.stack([getattr(each, name) for each in tables or leaks]) for name in Scaled._fields))
    if tables:
        return AttentionSource(stored=numbers, readout=readout)
    delays = [leak.delay.astype(np.int64) for leak in leaks if leak.delay is not None]
    return AttentionSource(
        tau=time_constant(*numbers), delays=np.stack(delays) if delays else None, leak=numbers, readout=readout
    )
