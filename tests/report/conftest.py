"""Runs to explain: small networks in torch and deployed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lapis.config import Coding, CodingByPoint, LapisConfig, MinCodeByPoint
from lapis.preprocess import Preprocess
from lapis.report.page import Explained, write_page
from tests.networks import small_config, small_model

SMALL: dict[str, Any] = {
    "image_size": 24,
    "patch_size": 8,
    "classes": 4,
    "width": 21,
    "depth": 3,
    "heads": 3,
    "mlp_ratio": 2,
    "row_scale": "pow2",
    "readout": "spikes",
}
CONFIGS = {
    "unsigned": LapisConfig(**SMALL, weight_bits=6),
    "signed": LapisConfig(**SMALL, weight_bits=6, window=20, coding=CodingByPoint.all("signed")),
    "narrow": LapisConfig(**SMALL, weight_bits=6, affinity_bits=4, coding=CodingByPoint.all("signed")),
    "deadlines": LapisConfig(
        **SMALL, weight_bits=6, coding=CodingByPoint.all("signed"), min_code=MinCodeByPoint(readout=(2, 3, 4), v=2)
    ),
    "relative": LapisConfig(**SMALL, weight_bits=6, style="beit", coding=CodingByPoint.all("offset")),
    "table": LapisConfig(**SMALL, weight_bits=6, relation="reciprocal"),
    "exact rows": LapisConfig(**(SMALL | {"row_scale": "exact", "readout": "real"}), window=1),
}
NAMES = ("cat", "dog", "ship", "<b>truck</b>")
OWN_NAMES = ("<b>cat</b>", "dog", "emu")


@dataclass(frozen=True)
class Made:
    """A run, and the executor that it came from."""

    explained: Explained
    source: Any


@pytest.fixture(scope="session")
def explain_torch() -> Callable[[str], Made]:
    from lapis.report.page.from_model import explain_model

    @cache
    def make(name: str) -> Made:
        model, images = small_model(CONFIGS[name], seed=3)
        return Made(explain_model(model, images[1], Preprocess(24), NAMES, model="small"), model)

    return make


@pytest.fixture(scope="session")
def explain_rule() -> Callable[..., Made]:
    """explain_rule(relation, mode="signed", **changes) -> a run in torch; the first of its blocks is an early one."""
    from lapis.report.page.from_model import explain_model

    @cache
    def make(relation: str, mode: Coding = "signed", **changes: Any) -> Made:
        config = LapisConfig(**SMALL | changes, relation=relation, coding=CodingByPoint.all(mode))
        model, images = small_model(config, seed=3)
        return Made(explain_model(model, images[1], Preprocess(24), NAMES, model="small"), model)

    return make


@pytest.fixture(scope="session")
def explain_deployed() -> Callable[[str], Made]:
    from lapis.convert.fold import from_model
    from lapis.report.page.explain import explain_network

    @cache
    def make(name: str) -> Made:
        model, images = small_model(CONFIGS[name], seed=3)
        network = from_model(model, class_names=NAMES)
        return Made(explain_network(network, images[1], model="small"), network)

    return make


@pytest.fixture(scope="session")
def demo_results(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    """The figures of a demo of a small network, and its page; the network is beside it."""
    from lapis import pack
    from lapis.convert.fold import from_model
    from lapis.data.packaged import CIFAR10_CLASSES
    from lapis.report.demo import run_demo

    folder = tmp_path_factory.mktemp("demo")
    model, _ = small_model(small_config(image_size=16, patch_size=8, classes=10, width=12), seed=2)
    network = from_model(model, class_names=CIFAR10_CLASSES)
    pack.save(folder / "small.safetensors", network)
    facts = run_demo(folder / "small.safetensors", folder, lambda step, line: None)
    return facts, folder / "index.html"


@pytest.fixture(scope="session")
def finetune_results(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The results of a fine-tuning on a folder of packaged images, with a small network."""
    from lapis import pack
    from lapis.convert.fold import from_model
    from lapis.data.class_folders import open_class_folders
    from lapis.data.packaged import packaged_images
    from lapis.report.finetune import FineTuneResults, answer_images
    from lapis.runtime.session import Session

    folder = tmp_path_factory.mktemp("finetune")
    images = packaged_images().pixels
    for index in range(60):
        place = folder / "pictures" / OWN_NAMES[index % 3].replace("/", "∕")
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(images[index][: 32 - index % 2 * 8]).save(place / f"{index}.png")
    held_out = open_class_folders(folder / "pictures").held_out
    model, _ = small_model(small_config(image_size=16, patch_size=8, classes=3, width=12), seed=5)
    pack.save(folder / "own.safetensors", from_model(model, class_names=held_out.classes))
    session = Session(folder / "own.safetensors")
    answers = answer_images(session, held_out, watched=8)
    stage = {"stage": "w6", "epochs": 2.0, "batch": 4, "lr": 1e-4, "steps": 24, "seconds": 3.0, "top1": 25.0}
    about = {
        "name": "own", "folder": "pictures", "start": "small", "train_images": 48, "held_out_images": len(held_out),
        "split": True, "fast": False, "engine": "numpy",
    }  # fmt: skip
    return FineTuneResults(
        folder / "own.safetensors", session.config, session.preprocess, held_out, answers, [stage], about
    )


@pytest.fixture(scope="session")
def distill_results(finetune_results: Any) -> Any:
    """Results of a distillation as they could be, with random logits in the place of the dense network's."""
    from lapis.report.distill import DistillResults

    found = finetune_results
    dense = np.random.default_rng(1).normal(0, 2, (len(found.held_out), 3)).astype(np.float32)
    held_aside = replace(found.held_out, labels=dense.argmax(axis=1))
    same = int((found.answers.predicted == held_aside.labels[found.answers.indices]).sum())
    answers = replace(
        found.answers,
        labels=held_aside.labels[found.answers.indices],
        evaluation=replace(found.answers.evaluation, top1_correct=same),
    )
    stages = [
        {
            "stage": stage,
            "steps": steps,
            "minutes": steps / 40,
            "images": len(held_aside),
            "agreement": agreement,
            "kl": kl,
            "block_errors": [scale * (0.3 + 0.05 * block) for block in range(12)],
        }
        for stage, steps, agreement, kl, scale in (
            ("calibrated", 0, 4.0, 5.4, 1.0),
            ("blocks", 700, 74.1, 0.61, 0.2),
            ("whole", 600, 81.3, 0.31, 0.25),
        )
    ]
    about = {
        "source": "deit_tiny_patch16_224", "folder": "tiny_distill", "train_images": 570, "held_aside_images": 12,
        "unreadable": ["bad.png is no image"], "image_size": 224, "classes": 1000, "window": 15, "weight_bits": 6,
        "engine": "numpy", "labelled": {"images": 1000, "deployed": 63.4, "dense": 70.8},
        "verified": {"passed": True, "text": "0 of 1,234,567 codes differ between spikes and the integer model"},
    }  # fmt: skip
    return DistillResults(found.file, found.preprocess, held_aside, answers, dense, stages, about)


@pytest.fixture
def open_page(open_file: Callable[..., Any], tmp_path: Path) -> Callable[..., Any]:
    """open_page(explained, **context) -> the run's page, ready."""

    def open_it(explained: Explained, **options: Any) -> Any:
        path = tmp_path / "page.html"
        write_page(path, explained)
        page = open_file(path, **options)
        page.evaluate("Lapis.ready")
        return page

    return open_it
