"""The demo's report in a real browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lapis.data.packaged import CIFAR10_CLASSES, load_photos, packaged_images
from lapis.report.demo import SHOWN, run_demo
from lapis.runtime import Session


def test_the_report_shows_every_figure(
    demo_results: tuple[dict[str, Any], Path], open_file: Callable[..., Any]
) -> None:
    shown, path = demo_results
    page = open_file(path)
    tiles = page.locator("#headline dd").all_inner_texts()
    assert tiles[0] == f"{shown['accuracy']['top1']:.1f} %"
    assert tiles[1] == "0"
    ratio = shown["energy"]["quantized_ratio"]
    assert tiles[2] == (f"{ratio:.1f} × less" if ratio >= 1 else f"{1 / ratio:.1f} × more")
    assert page.locator("#answers .answer").count() == SHOWN
    assert page.locator("#photos-section").is_hidden()
    answers = page.evaluate("JSON.parse(document.getElementById('data').textContent).answers")
    wrong = sum(not answer["right"] for answer in answers)
    assert page.locator(".answer.wrong").count() == wrong
    assert page.locator("#equality tbody tr").count() == 2
    assert "✗" not in page.inner_text("#equality")
    assert page.locator("#energy .ours-dot").count() > 5


def test_the_link_leads_to_the_explained_image(
    demo_results: tuple[dict[str, Any], Path], open_file: Callable[..., Any]
) -> None:
    page = open_file(demo_results[1])
    page.click("#explain")
    page.wait_for_url("**/explain.html")
    page.evaluate("Lapis.ready")
    assert page.inner_text("#prediction").endswith(CIFAR10_CLASSES[packaged_images().labels[0]])


def test_a_link_leads_to_the_page_for_own_pictures(
    demo_results: tuple[dict[str, Any], Path], open_file: Callable[..., Any]
) -> None:
    page = open_file(demo_results[1])
    page.click("#live")
    page.wait_for_url("**/live.html")
    page.evaluate("Lapis.ready")
    page.locator(".sample").nth(1).click()
    page.locator("#live-time").get_by_text("ms per image").wait_for()


def test_the_report_turns_dark(demo_results: tuple[dict[str, Any], Path], open_file: Callable[..., Any]) -> None:
    page = open_file(demo_results[1], color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.click("#theme")
    assert page.evaluate(ground) != before


def test_the_verdict_stays_in_sight_on_a_phone(
    demo_results: tuple[dict[str, Any], Path], open_file: Callable[..., Any]
) -> None:
    page = open_file(demo_results[1], viewport={"width": 390, "height": 844})
    page.locator(".scroll").evaluate("(host) => host.scrollBy(9999, 0)")
    box = page.locator("#equality tbody td", has_text="✓").first.bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert page.locator(".scroll-hint").is_visible()


def test_photographs_come_first_where_there_is_a_network_for_them(
    demo_results: tuple[dict[str, Any], Path], open_file: Callable[..., Any], tmp_path: Path
) -> None:
    network = demo_results[1].with_name("small.safetensors")
    run_demo(network, tmp_path, lambda step, line: None, photo_model=network)
    session, page = Session(network), open_file(tmp_path / "index.html")
    assert page.locator("#photos .answer").count() == len(load_photos()) == 5
    assert page.evaluate("[...document.querySelectorAll('#photos img')].every((img) => img.naturalHeight === 256)")
    for photo, shown in zip(load_photos(), page.locator("#photos .answer").all_inner_texts(), strict=True):
        best = session.run(photo.image[None])[0].argmax()
        assert shown.startswith(session.name_of(int(best)))
        assert photo.shows in shown
        assert photo.credit in shown
