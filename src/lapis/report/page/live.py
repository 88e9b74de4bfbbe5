"""The live explain page: a packed network and the engine in one HTML file, which explains pictures in the browser.

The page holds the packed file as it is and the C engine as WebAssembly (`make wasm` builds it), so that a picture is
prepared and classified in the browser by the code that also runs natively, with equal codes and logits. It also holds
the logits of its first picture, and uses an engine only if it answers with them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lapis import assets, models, pack
from lapis.config import LapisConfig
from lapis.data.packaged import CIFAR10_CLASSES, load_photos, packaged_images
from lapis.deploy.network import Network, check_deployable
from lapis.energy import CONVENTIONS, estimate
from lapis.energy.costs import DEFAULT_TABLE
from lapis.energy.counts import needed_points, neurons
from lapis.errors import LapisError
from lapis.preprocess import Pixels
from lapis.report.page.evidence import TOP_CLASSES, describe_occlusion, tile_side
from lapis.report.page.explain import attention_of, check_explainable, open_image
from lapis.report.page.page import INT8_COSTS, SCRIPTS, data_url, energy_rows, fill, network_facts, write_html
from lapis.runtime.session import Session
from lapis.trace import POINTS, Point

# The engine as WebAssembly, fastest first, and what each needs of a browser.
MODULES = {"engine_relaxed.wasm": "relaxed 128-bit vectors", "engine.wasm": "128-bit vectors"}
# The entry of a quantity that no activity changes.
SILENT = "silent"
# Pictures to try before there is one of the reader's own.
SAMPLES = 10
# app.js starts the page, so it comes last.
LIVE_SCRIPTS = (*SCRIPTS[:-1], "engine.js", "measures.js", "live.js", SCRIPTS[-1])


class LivePicture(NamedTuple):
    """A picture that the page offers; its caption is shown as the name of the picture."""

    image: Pixels
    name: str


def write_live_page(path: str | Path, model: str | Path, image: str | Path | None = None) -> int:
    """Write the live page of any deployable model and return its size in bytes; it opens on `image` if one is given."""
    opened = models.load(model)
    if opened.kind == "checkpoint":
        try:
            check_deployable(opened.config)
        except LapisError as error:
            raise LapisError(
                f"{error}. A live page runs deployed networks; without --live, lapis explain shows this one as trained"
            ) from error
    network = opened.network
    file = opened.path.read_bytes() if opened.kind == "packed" and opened.path else pack.pack(network)
    first = [] if image is None else [LivePicture(open_image(image)[0], Path(image).name)]
    return write_html(path, render_live(network, file, Path(model).name, first + packaged_samples(network.class_names)))


def render_live(network: Network, file: bytes, name: str, samples: list[LivePicture]) -> str:
    """The whole page as text; `file` is the packed network."""
    data = live_payload(network, file, name, samples)
    return fill("explain", f"Lapis explains your pictures with {name}", data, LIVE_SCRIPTS, live=True)


def live_payload(network: Network, file: bytes, name: str, samples: list[LivePicture]) -> dict[str, Any]:
    """All data for the script: the network, its file, the engine, the rules of the energy, pictures to try."""
    config = network.config
    check_explainable(config)
    if network.compared_by == "dot":
        raise LapisError(
            f"the live page draws attention by l1 distances, and relation={config.relation!r} has none; "
            "`lapis explain` shows such a network on one picture"
        )
    side = tile_side(config.grid)
    return network_facts(config, network.class_names, attention_of(network), assets.min_score(name)) | {
        "model": name,
        "blocks": list(range(config.depth)),
        "points": list(POINTS),
        "neurons": {point: neurons(config, point) for point in POINTS},
        "engines": [{"name": MODULES[name], "code": _text(module(name))} for name in MODULES],
        "file": _text(file),
        "energy_rules": [energy_rule(config, name) for name in CONVENTIONS],
        "int8_rule": energy_rule(config, costs=INT8_COSTS),
        "occlusion": {"side": side, "classes": TOP_CLASSES, "says": describe_occlusion(side)},
        "samples": [{"name": sample.name, "image": data_url(sample.image)} for sample in samples],
        # As text: JavaScript's numbers have 53 bits.
        "first_logits": [str(logit) for logit in Session(network).watch_integers(samples[0].image).logits[0]],
    }


def module(name: str) -> bytes:
    """One of MODULES."""
    found = files("lapis.report.page") / name
    if not found.is_file():
        raise LapisError(f"this build has no {name}, an engine for browsers; in a checkout, `make wasm` builds it")
    return found.read_bytes()


def packaged_samples(class_names: tuple[str, ...]) -> list[LivePicture]:
    """One packaged image of each class of CIFAR-10 for a network of these classes, photographs for others."""
    if class_names != CIFAR10_CLASSES:
        return [LivePicture(photo.image, f"{photo.shows}, photograph: {photo.credit}") for photo in load_photos()]
    sample = packaged_images()
    images, labels = sample.pixels, sample.labels
    firsts = [(CIFAR10_CLASSES[label], int(np.flatnonzero(labels == label)[0])) for label in range(SAMPLES)]
    return [LivePicture(images[index], f"{name}, CIFAR-10 test image {index}") for name, index in firsts]


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def energy_rule(config: LapisConfig, convention: str = "paper", costs: str = DEFAULT_TABLE) -> dict[str, Any]:
    """As `energy_rows`, but with what depends on activities as {silent: constant, point: slope}.

    Every count of operations is a constant plus a multiple of the activity at each measuring point (`lapis.energy`),
    and all blocks have the same shape. So the estimate of a silent network and those of networks in which one point
    fires fully say everything: energy = silent + sum over points of (full - silent) activity.
    """
    points = needed_points(config)
    firing: list[dict[Point, float]] = [{p: float(p == at) for p in points} for at in (None, *points)]
    silent, *full = (energy_rows(estimate(config, activity, convention, costs)) for activity in firing)

    def rule(of: Callable[[dict[str, Any]], float]) -> dict[str, float]:
        constant = of(silent)
        slopes = (of(each) - constant for each in full)
        return {SILENT: constant} | {point: slope for point, slope in zip(points, slopes, strict=True) if slope}

    def ours(number: int, name: str) -> dict[str, float]:
        return rule(lambda made: float(made["rows"][number]["ours"][name]))

    kept = ("convention", "counted", "node", "latency_steps", "quantized_mj", "dense_energy_mj")
    return {name: silent[name] for name in kept} | {
        "skipping_mj": rule(lambda made: float(made["skipping_mj"])),
        "rows": [
            row | {"ours": row["ours"] | {"mj": ours(number, "mj"), "count": ours(number, "count")}}
            for number, row in enumerate(silent["rows"])
        ],
    }
