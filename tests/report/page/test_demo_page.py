"""The demo's report in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lapis.report.demo import DemoResults, facts


def test_the_report_shows_every_figure(demo_results: tuple[DemoResults, Path], open_file: Callable[..., Any]) -> None:
    made, path = demo_results
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
    demo_results: tuple[DemoResults, Path], open_file: Callable[..., Any]
) -> None:
    page = open_file(demo_results[1])
    page.click("#explain")
    page.wait_for_url("**/explain.html")
    page.evaluate("Lapis.ready")
    assert page.inner_text("#prediction").endswith(demo_results[0].answers[0].label)


def test_a_link_leads_to_the_page_for_own_pictures(
    demo_results: tuple[DemoResults, Path], open_file: Callable[..., Any]
) -> None:
    page = open_file(demo_results[1])
    page.click("#live")
    page.wait_for_url("**/live.html")
    page.evaluate("Lapis.ready")
    page.locator(".sample").nth(1).click()
    page.locator("#live-time").get_by_text("ms per image").wait_for()


def test_the_report_turns_dark(demo_results: tuple[DemoResults, Path], open_file: Callable[..., Any]) -> None:
    page = open_file(demo_results[1], color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) != before


def test_the_verdict_stays_in_sight_on_a_phone(
    demo_results: tuple[DemoResults, Path], open_file: Callable[..., Any]
) -> None:
    page = open_file(demo_results[1], viewport={"width": 390, "height": 844})
    page.locator(".scroll").evaluate("(host) => host.scrollBy(9999, 0)")
    box = page.locator("#equality tbody td", has_text="agrees").first.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert page.locator(".scroll-hint").is_visible()
