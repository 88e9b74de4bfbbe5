"""The checks of `lapis demo` on one packed model and real images, and the report of their results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lapis
from lapis import pack
from lapis._util.hints import install_command
from lapis._util.machine import processor
from lapis.config import LapisConfig
from lapis.convert.verification import Agreement, Executor, spiking_executor, verify
from lapis.data.packaged import CIFAR10_CLASSES, load_photos, load_sample
from lapis.deploy.network import Network
from lapis.deploy.simulate import Events
from lapis.energy import Estimate, estimate
from lapis.energy.estimate import describe
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.report.page import write_page
from lapis.report.page.explain import explain_network
from lapis.report.page.live import write_live_page
from lapis.report.page.page import data_url, energy_rows, engine_name, fill, int8_ratio, write_html
from lapis.runtime.accuracy import evaluate_session
from lapis.runtime.session import Prediction, Session
from lapis.trace import Tally

# The simulator walks every step of every neuron, in numpy more than a second per image; the engine needs milliseconds.
SPIKING_IMAGES, ENGINE_IMAGES = 2, 32
BATCH = 16
TIMED_RUNS = 25
SHOWN = 12
# Activities settle to the second digit within this many images.
WATCHED = 64

ReportLine = Callable[[str, str], None]


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


def open_subject(path: Path) -> Subject:
    network = pack.load(path)
    return Subject(path, network, Session(network))


def run_demo(path: Path, out: Path, report: ReportLine, photo_model: Path | None = None) -> dict[str, Any]:
    """Check one packed model on the packaged images, write the pages and return their figures.

    A `photo_model` names the packaged photographs, and makes the pages for looking inside.
    """
    started = time.perf_counter()
    subject, (images, labels) = open_subject(path), load_sample()
    classes = subject.config.classes
    if classes != len(CIFAR10_CLASSES) or (subject.network.class_names or CIFAR10_CLASSES) != CIFAR10_CLASSES:
        raise LapisError(
            f"{path} has {classes} other classes; the demo's images are of CIFAR-10: {', '.join(CIFAR10_CLASSES)}"
        )
    opened = None if photo_model is None else open_subject(photo_model)
    photos = [] if opened is None else name_photos(opened)
    if photos:
        report("photos", "; ".join(f"{photo['shows']}: {photo['answers'][0]['name']}" for photo in photos))
    ranked = subject.session.predict_each(images[:SHOWN], top_k=1)
    answers = [_answer(image, best[0], label) for image, best, label in zip(images, ranked, labels, strict=False)]
    engine, right = engine_name(subject.session), sum(answer["right"] for answer in answers)
    shown = (a["prediction"] + ("" if a["right"] else f" (is {a['label']})") for a in answers[:5])
    report("classify", f"{right} of {SHOWN} right by {engine}: {', '.join(shown)}, ...")

    equality, events = compare_executors(subject, images)
    for agreement in equality:
        verdict = "" if agreement.passed else " (FAIL: more than the tolerance)"
        report(
            "verify",
            f"{agreement.name} against the integer model on {agreement.images} images: "
            f"{agreement.differing:,} of {agreement.codes:,} codes differ{verdict}",
        )

    accuracy = evaluate_session(subject.session, images, labels)
    report("accuracy", f"{accuracy.top1:.2f} % top-1, {accuracy.top5:.2f} % top-5 of {accuracy.images} test images")

    tally, energy = measure_energy(subject, images[:WATCHED])
    less = int8_ratio(subject.config, tally)
    report("energy", describe(energy.summary(), less))

    speed = measure_speed(subject, images[0])
    against = f"no comparison: {speed['rival']}"
    if speed["ratio"] is not None:
        against = f"{speed['ratio']:.1f} times the speed of {speed['rival']} ({speed['rival_ms']:.2f} ms)"
    report("speed", f"{speed['ours_ms']:.2f} ms per image on one thread; {against}")

    if opened is None:
        pages = _write_pages(out, subject, images[0], "sample:0", CIFAR10_CLASSES[labels[0]], report)
    else:
        photo = load_photos()[0]
        pages = _write_pages(out, opened, photo.image, photo.file, photo.shows, report)
    facts = {
        "version": lapis.__version__,
        "machine": processor(),
        "model": path.stem,
        "bytes": path.stat().st_size,
        "engine": engine,
        "window": subject.config.window,
        "photo_model": "" if opened is None else opened.path.stem,
        "photos": photos,
        "accuracy": accuracy.as_dict(),
        "equality": [{"name": agreement.name, **agreement.to_dict()} for agreement in equality],
        "checks_passed": all(agreement.passed for agreement in equality),
        "spikes": sum(events.spikes.values()) / events.images,
        "operations": sum(events.operations.values()) / events.images,
        "latency": events.window_steps,
        "activities": tally.activities(),
        "measured": tally.images,
        "energy": energy_rows(energy),
        "int8_ratio": less,
        "speed": speed,
        "seconds": time.perf_counter() - started,
        **pages,
    }
    pictures = {"answers": answers, "photo_images": [data_url(photo.image) for photo in load_photos()[: len(photos)]]}
    title = f"Lapis demo · {path.stem}"
    write_html(out / "index.html", fill("demo", title, facts | pictures, ("dom.js", "charts.js", "demo.js")))
    return facts


def _write_pages(
    out: Path, subject: Subject, image: Pixels, name: str, label: str, report: ReportLine
) -> dict[str, str]:
    """Write the page that explains an image and the page for the reader's own; "" for a network no browser runs."""
    explain, live = out / "explain.html", out / "live.html"
    write_page(explain, explain_network(subject.network, image, model=subject.path.stem, picture=name, label=label))
    report("explain", str(explain))
    try:
        write_live_page(live, subject.path)
    except LapisError as error:
        report("live", f"no page for your own pictures: {error}")
        return {"explain": explain.name, "live": ""}
    report("live", f"{live} classifies your own pictures, in the browser")
    return {"explain": explain.name, "live": live.name}


def _answer(image: Pixels, best: Prediction, label: int) -> dict[str, Any]:
    """One image with its likeliest class, that class's score, and the correct class."""
    name, truth = CIFAR10_CLASSES[best.index], CIFAR10_CLASSES[label]
    return {"image": data_url(image), "prediction": name, "score": best.score, "label": truth, "right": name == truth}


def name_photos(subject: Subject) -> list[dict[str, Any]]:
    """Every packaged photograph with its three likeliest classes."""
    session = subject.session
    return [
        {
            "shows": photo.shows,
            "credit": photo.credit,
            "answers": [
                {"name": session.name_of(each.index), "score": each.score}
                for each in session.predict_each(photo.image, top_k=3)[0]
            ],
        }
        for photo in load_photos()
    ]


def compare_executors(subject: Subject, images: Pixels) -> tuple[tuple[Agreement, ...], Events]:
    """Spikes and engine against the integer model: every code at every measuring point, and the logits."""
    pixels = subject.session.read(images[:ENGINE_IMAGES])
    events = Events()
    spikes = verify(
        subject.network, {"spikes": spiking_executor(subject.network, events)}, _batches(pixels[:SPIKING_IMAGES], 1)
    )
    engine = verify(
        subject.network, {"engine": Executor(subject.uncropped().watch_integers, "equal")}, _batches(pixels, BATCH)
    )
    return (*spikes.agreements, *engine.agreements), events


def measure_energy(subject: Subject, images: Pixels) -> tuple[Tally, Estimate]:
    """The spikes over the images, and the energy per image at those activities, under the paper's convention."""
    tally = Tally()
    for some, _ in _batches(images, BATCH):
        tally.add(subject.session.watch(some).trace)
    return tally, estimate(subject.config, tally)


def measure_speed(subject: Subject, image: Pixels) -> dict[str, Any]:
    """Median milliseconds per image, one at a time on one thread, of the engine and of the dense network of the same
    shape in PyTorch FP32, which take turns; the latter is None if PyTorch cannot run.
    """
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
    ours_ms, rival_ms = medians["ours"], medians.get("rival")
    ratio = None if rival_ms is None else rival_ms / ours_ms
    return {"ours_ms": ours_ms, "rival_ms": rival_ms, "rival": reason, "ratio": ratio}


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
