"""The checks of `lapis demo` on one packed model and real images, and the report of their results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lapis
from lapis import pack
from lapis._util.hints import install_command
from lapis._util.machine import processor
from lapis.config import LapisConfig
from lapis.convert.verification import Agreement, Executor, spiking_executor, verify
from lapis.data.packaged import CIFAR10_CLASSES, load_photos, packaged_images
from lapis.deploy.network import Network
from lapis.deploy.simulate import Events
from lapis.energy import estimate
from lapis.energy.estimate import describe
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.report.page import write_page
from lapis.report.page.explain import explain_network, uncropped
from lapis.report.page.live import write_live_page
from lapis.report.page.page import data_url, energy_rows, engine_name, fill, int8_ratio, write_html
from lapis.runtime.accuracy import evaluate_session
from lapis.runtime.session import Session

# The simulator walks every step of every neuron, in numpy more than a second per image; the engine needs milliseconds.
SPIKING_IMAGES, ENGINE_IMAGES = 2, 32
BATCH = 16
TIMED_RUNS = 25
SHOWN = 12
# Activities settle to the second digit within this many images.
WATCHED = 64

ReportLine = Callable[[str, str], None]


def run_demo(path: Path, out: Path, report: ReportLine, photo_model: Path | None = None) -> dict[str, Any]:
    """Check one packed model on the packaged images, write the pages and return their figures.

    A `photo_model` names the packaged photographs, and makes the pages for looking inside.
    """
    started = time.perf_counter()
    network, sample = pack.load(path), packaged_images()
    images, labels = sample.pixels, sample.labels
    session, config, classes = Session(network), network.config, network.config.classes
    if classes != len(CIFAR10_CLASSES) or (network.class_names or CIFAR10_CLASSES) != CIFAR10_CLASSES:
        raise LapisError(
            f"{path} has {classes} other classes; the demo's images are of CIFAR-10: {', '.join(CIFAR10_CLASSES)}"
        )
    photos = [] if photo_model is None else name_photos(Session(photo_model))
    if photos:
        report("photos", "; ".join(f"{photo['shows']}: {photo['answers'][0]['name']}" for photo in photos))
    ranked = session.predict_each(images[:SHOWN], top_k=1)
    answers: list[dict[str, Any]] = []
    for image, [best], label in zip(images, ranked, labels, strict=False):
        name, truth = CIFAR10_CLASSES[best.index], CIFAR10_CLASSES[label]
        answer = {"image": data_url(image), "prediction": name, "score": best.score, "label": truth}
        answers.append(answer | {"right": name == truth})
    engine, right = engine_name(session), sum(answer["right"] for answer in answers)
    shown = (a["prediction"] + ("" if a["right"] else f" (is {a['label']})") for a in answers[:5])
    report("classify", f"{right} of {SHOWN} right by {engine}: {', '.join(shown)}, ...")

    equality, events = compare_executors(network, session.read(images[:ENGINE_IMAGES]))
    for agreement in equality:
        verdict = "" if agreement.passed else " (FAIL: more than the tolerance)"
        report(
            "verify",
            f"{agreement.name} against the integer model on {agreement.images} images: "
            f"{agreement.differing:,} of {agreement.codes:,} codes differ{verdict}",
        )

    accuracy = evaluate_session(session, images, labels, BATCH, watched=WATCHED)
    report("accuracy", f"{accuracy.top1:.2f} % top-1, {accuracy.top5:.2f} % top-5 of {accuracy.images} test images")

    tally = accuracy.tally
    energy, less = estimate(config, tally), int8_ratio(config, tally)
    report("energy", describe(energy.summary(), less))

    speed = measure_speed(network, session.read(images[:1]))
    against = f"no comparison: {speed['rival']}"
    if speed["ratio"] is not None:
        against = f"{speed['ratio']:.1f} times the speed of {speed['rival']} ({speed['rival_ms']:.2f} ms)"
    report("speed", f"{speed['ours_ms']:.2f} ms per image on one thread; {against}")

    if photo_model is None:
        pages = _write_pages(out, path, images[0], "sample:0", CIFAR10_CLASSES[labels[0]], report)
    else:
        photo = load_photos()[0]
        pages = _write_pages(out, photo_model, photo.image, photo.file, photo.shows, report)
    facts = {
        "version": lapis.__version__,
        "machine": processor(),
        "model": path.stem,
        "bytes": path.stat().st_size,
        "engine": engine,
        "window": config.window,
        "photo_model": "" if photo_model is None else photo_model.stem,
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


def _write_pages(out: Path, model: Path, image: Pixels, name: str, label: str, report: ReportLine) -> dict[str, str]:
    """Write the page that explains an image and the page for the reader's own; "" for a network no browser runs."""
    explain, live = out / "explain.html", out / "live.html"
    write_page(explain, explain_network(pack.load(model), image, model=model.stem, picture=name, label=label))
    report("explain", str(explain))
    try:
        write_live_page(live, model)
    except LapisError as error:
        report("live", f"no page for your own pictures: {error}")
        return {"explain": explain.name, "live": ""}
    report("live", f"{live} classifies your own pictures, in the browser")
    return {"explain": explain.name, "live": live.name}


def name_photos(session: Session) -> list[dict[str, Any]]:
    """Every packaged photograph with its three likeliest classes."""
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


def compare_executors(network: Network, pixels: Pixels) -> tuple[tuple[Agreement, ...], Events]:
    """Spikes and engine against the integer model: every code at every measuring point, and the logits."""
    events = Events()
    spikes = {"spikes": spiking_executor(network, events)}
    few = verify(network, spikes, [(image[None], None) for image in pixels[:SPIKING_IMAGES]])
    engine = {"engine": Executor(uncropped(network).watch_integers, "equal")}
    many = verify(network, engine, [(pixels[start : start + BATCH], None) for start in range(0, len(pixels), BATCH)])
    return (*few.agreements, *many.agreements), events


def measure_speed(network: Network, pixels: Pixels) -> dict[str, Any]:
    """Median milliseconds per image, one at a time on one thread; `rival_ms` is None if PyTorch cannot run.

    The rival is the dense network of the same shape in PyTorch FP32; the two take turns.
    """
    session = uncropped(network)
    runs: dict[str, Callable[[], object]] = {"ours": lambda: session.run(pixels)}
    rival, reason = _dense_in_torch(network.config)
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
