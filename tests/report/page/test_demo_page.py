"""The demo's report in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lapis import pack
from lapis.cli import demo
from lapis.data.slice import CIFAR10_CLASSES
from lapis.report.page.demo_page import DemoResults, facts, write_report
from tests.networks import small_config, small_model

CONFIG = small_config(image_size=16, patch_size=8, classes=10, width=12)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[DemoResults, Path]:
    from lapis.convert.fold import from_model

    folder = tmp_path_factory.mktemp("demo")
    model, _ = small_model(CONFIG, seed=2)
    network = from_model(model, class_names=CIFAR10_CLASSES, trained_slice=range(380))
    pack.save(folder / "small.safetensors", network)
    made = demo.run_checks(folder / "small.safetensors", "Made <here>.", folder, 0.0, lambda step, line: None)
    write_report(folder / "index.html", made)
    return made, folder / "index.html"


def test_the_report_shows_every_figure(results: tuple[DemoResults, Path], open_file: Callable[..., Any]) -> None:
    made, path = results
    page, shown = open_file(path), facts(made)
    tiles = page.locator("#headline dd").all_inner_texts()
    assert tiles[0] == f"{shown['accuracy']['top1']:.1f} %"
    assert tiles[1] == "0"
    assert tiles[2] == f"{shown['energy']['ratio']:.1f} ×"
    assert page.locator(".answer").count() == len(made.answers)
    assert page.locator(".answer.wrong").count() == sum(not answer.right for answer in made.answers)
    assert page.locator("#equality tbody tr").count() == 2
    assert "✗" not in page.inner_text("#equality")
    assert page.inner_text("#training-says") == "Made <here>."
    assert page.locator("#energy .ours-dot").count() > 5


def test_the_link_leads_to_the_explained_image(
    results: tuple[DemoResults, Path], open_file: Callable[..., Any]
) -> None:
    page = open_file(results[1])
    page.click("#explain")
    page.wait_for_url("**/explain.html")
    page.evaluate("Lapis.ready")
    assert page.inner_text("#prediction").endswith(results[0].answers[0].label)


def test_the_report_fits_a_phone_and_turns_dark(
    results: tuple[DemoResults, Path], open_file: Callable[..., Any]
) -> None:
    page = open_file(results[1], viewport={"width": 390, "height": 844}, color_scheme="light")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) != before
