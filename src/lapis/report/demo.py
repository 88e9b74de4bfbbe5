"""The checks of `lapis demo` on one packed model and real images, and the report of their results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import lapis
from lapis import pack
from lapis._util.hints import install_command
from lapis.config import LapisConfig
from lapis.convert.verification import Agreement, Executor, spiking_executor, verify
from lapis.data.packaged import Photo, load_photos
from lapis.deploy.network import Network
from lapis.deploy.simulate import Events
from lapis.energy import Estimate, estimate
from lapis.preprocess import Pixels
from lapis.report.page.page import data_url, energy_rows, fill, int8_ratio, write_html
from lapis.runtime.accuracy import Evaluation
from lapis.runtime.session import NUMPY, Session
from lapis.trace import Tally

Labels = npt.NDArray[np.int64]

# The simulator walks every step of every neuron, in numpy more than a second per image; the engine needs milliseconds.
SPIKING_IMAGES, ENGINE_IMAGES = 2, 32
BATCH = 16
TIMED_RUNS = 25


@dataclass(frozen=True)
class Subject:
    """A packed model, opened once for all checks."""

    path: Path
    network: Network
    session: Session

    @property
    def config(self) -> LapisConfig:
        return self.network.config

    def uncropped(self) -> Session:
        """A session that takes prepared pixels as they are, where the network's own crops again."""
        return Session(replace(self.network, preprocess=replace(self.network.preprocess, crop=1.0)))

    @property
    def engine(self) -> str:
        """The executor of the session, in words."""
        return "numpy" if self.session.executor == NUMPY else f"the native engine ({self.session.executor})"


@dataclass(frozen=True)
class Classified:
    """One image, its predicted class with the score (its share of the softmax), and its correct class."""

    image: Pixels
    name: str
    score: float
    label: str

    @property
    def right(self) -> bool:
        return self.name == self.label


@dataclass(frozen=True)
class Photographs:
    """The packaged photographs, each with the likeliest classes and their scores; none without a network for them."""

    subject: Subject | None = None
    answers: tuple[tuple[Photo, list[tuple[str, float]]], ...] = ()


@dataclass(frozen=True)
class Equality:
    """Executors compared with the integer model, code by code, and the events of the spiking one."""

    agreements: tuple[Agreement, ...]
    events: Events

    @property
    def passed(self) -> bool:
        return all(agreement.passed for agreement in self.agreements)


@dataclass(frozen=True)
class Speed:
    """Median milliseconds per image, one image at a time on one thread; `rival_ms` is None if PyTorch cannot run."""

    ours_ms: float
    rival_ms: float | None
    rival: str

    @property
    def ratio(self) -> float | None:
        return None if self.rival_ms is None else self.rival_ms / self.ours_ms


def open_subject(path: Path) -> Subject:
    network = pack.load(path)
    return Subject(path, network, Session(network))


def classify(subject: Subject, images: Pixels, labels: Labels, names: Sequence[str]) -> list[Classified]:
    """Every image with its likeliest class."""
    ranked = subject.session.predict_each(images, top_k=1)
    return [
        Classified(image, names[best[0].index], best[0].score, names[label])
        for image, best, label in zip(images, ranked, labels, strict=True)
    ]


def classify_photos(subject: Subject) -> Photographs:
    """Every packaged photograph with its three likeliest classes."""
    session = subject.session
    ranked = [session.predict_each(photo.image, top_k=3)[0] for photo in load_photos()]
    named = [[(session.name_of(each.index), each.score) for each in best] for best in ranked]
    return Photographs(subject, tuple(zip(load_photos(), named, strict=True)))


def compare_executors(subject: Subject, images: Pixels) -> Equality:
    """Spikes and engine against the integer model: every code at every measuring point, and the logits."""
    pixels = subject.session.read(images[:ENGINE_IMAGES])
    events = Events()
    spikes = verify(
        subject.network, {"spikes": spiking_executor(subject.network, events)}, _batches(pixels[:SPIKING_IMAGES], 1)
    )
    engine = verify(
        subject.network, {"engine": Executor(subject.uncropped().watch_integers, "equal")}, _batches(pixels, BATCH)
    )
    return Equality((*spikes.agreements, *engine.agreements), events)


def measure_energy(subject: Subject, images: Pixels) -> tuple[Tally, Estimate]:
    """The spikes over the images, and the energy per image at those activities, under the paper's convention."""
    tally = Tally()
    for some, _ in _batches(images, BATCH):
        tally.add(subject.session.watch(some).trace)
    return tally, estimate(subject.config, tally)


def measure_speed(subject: Subject, image: Pixels) -> Speed:
    """Time the engine and the dense network of the same shape in PyTorch FP32, in turns."""
    session, pixels = subject.uncropped(), subject.session.read(image[None])
    runs: dict[str, Callable[[], object]] = {"ours": lambda: session.run(pixels)}
    rival, reason = _dense_in_torch(subject.config)
    if rival is not None:
        runs["rival"] = rival
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for turn in range(TIMED_RUNS + 2):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            # The first turns fill the caches and do not count.
            if turn >= 2:
                taken[name].append(1e3 * (time.perf_counter() - start))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    return Speed(medians["ours"], medians.get("rival"), reason)


def _dense_in_torch(config: LapisConfig) -> tuple[Callable[[], object] | None, str]:
    """A run of the dense network of this shape on one thread, or None and the reason."""
    try:
        import torch

        from lapis.nn import LapisViT
    except ImportError:
        return None, f"torch is not installed: {install_command('train')}"
    # Its speed does not depend on its weights.
    model = LapisViT(config.dense()).eval()
    images = torch.zeros(1, 3, config.image_size, config.image_size)

    def run() -> object:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                return model(images)
        finally:
            torch.set_num_threads(threads)

    return run, f"PyTorch {torch.__version__} eager FP32, the dense network of this shape"


def _batches(pixels: Pixels, size: int) -> list[tuple[Pixels, None]]:
    return [(pixels[start : start + size], None) for start in range(0, len(pixels), size)]


class Pages(NamedTuple):
    """Files beside the report: the explain page of the first image, and the page for other pictures ("": none)."""

    explain: str
    live: str


@dataclass(frozen=True)
class DemoResults:
    """The results of all checks; `training` describes how the model was trained, if the demo trained it."""

    subject: Subject
    photos: Photographs
    answers: list[Classified]
    equality: Equality
    accuracy: Evaluation
    tally: Tally
    energy: Estimate
    speed: Speed
    machine: str
    seconds: float
    pages: Pages
    training: str = ""


def facts(results: DemoResults) -> dict[str, Any]:
    """The results as a table for JSON, without images."""
    subject, events = results.subject, results.equality.events
    return {
        "version": lapis.__version__,
        "machine": results.machine,
        "model": subject.path.stem,
        "bytes": subject.path.stat().st_size,
        "engine": subject.engine,
        "window": subject.config.window,
        "training": results.training,
        "photo_model": results.photos.subject.path.stem if results.photos.subject else "",
        "photos": [
            {"shows": photo.shows, "credit": photo.credit, "answers": [{"name": n, "score": s} for n, s in top]}
            for photo, top in results.photos.answers
        ],
        "accuracy": results.accuracy.to_dict(),
        "equality": [{"name": agreement.name, **agreement.to_dict()} for agreement in results.equality.agreements],
        "checks_passed": results.equality.passed,
        "spikes": sum(events.spikes.values()) / events.images,
        "operations": sum(events.operations.values()) / events.images,
        "latency": events.window_steps,
        "activities": results.tally.activities(),
        "measured": results.tally.images,
        "energy": energy_rows(results.energy),
        "int8_ratio": int8_ratio(subject.config, results.tally),
        "speed": {
            "ours_ms": results.speed.ours_ms,
            "rival_ms": results.speed.rival_ms,
            "rival": results.speed.rival,
            "ratio": results.speed.ratio,
        },
        "seconds": results.seconds,
        **results.pages._asdict(),
    }


def write_report(path: Path, results: DemoResults) -> int:
    """Write the report and return its size in bytes."""
    answers = [
        {
            "image": data_url(answer.image),
            "prediction": answer.name,
            "score": answer.score,
            "label": answer.label,
            "right": answer.right,
        }
        for answer in results.answers
    ]
    title = f"Lapis demo · {results.subject.path.stem}"
    pictures = [data_url(photo.image) for photo, _ in results.photos.answers]
    data = facts(results) | {"answers": answers, "photo_images": pictures}
    return write_html(path, fill("demo", title, data, ("dom.js", "charts.js", "demo.js")))
