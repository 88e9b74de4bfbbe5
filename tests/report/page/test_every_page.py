"""Every page in every light: pictures of it, its width on a phone, its labels, its accessibility, its tab stops.

The pictures are left in build/screenshots for people to look at. A new kind of page is added to `pages`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from benchmarks.synthetic import random_network
from lapis.report import explain
from lapis.report.distill import write_distill_page
from lapis.report.finetune import write_finetune_page
from lapis.report.page import page as page_module
from lapis.report.page import write_page
from lapis.report.page.explain import explain_network
from lapis.report.page.live import write_live_page
from tests.networks import images_for, small_config

ROOT = Path(__file__).resolve().parents[3]
AXE = ROOT / "tools/biome/node_modules/axe-core/axe.min.js"
PICTURES = ROOT / "build/screenshots"
PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "color_scheme": "light"}
DESKTOP: dict[str, Any] = {"viewport": {"width": 1200, "height": 900}}
VIEWS: dict[str, dict[str, Any]] = {
    "desktop": {**DESKTOP, "color_scheme": "light"},
    "dark": {**DESKTOP, "color_scheme": "dark"},
    "phone": PHONE,
}
# Blocks and heads of Lapis-L, at a width that a test can run.
LARGE = small_config(image_size=56, patch_size=4, classes=20, width=64, depth=24, heads=16, style="beit")
WHOLE = ("explain", "explain-live", "demo", "finetune", "distill")
# The page of "explain" with other panels, in one view each.
VARIANTS = ("explain-large", "explain-cut", "explain-torch", "explain-recorded", "explain-table")
KINDS = (*WHOLE, *VARIANTS)
# Text that a reader takes in at a glance: one line, never cut.
LABELS = "button, th, td, label, summary, figcaption b, .class-share, .facts dt, .facts dd, .legend span, .thumb-name"


@pytest.fixture(scope="module")
def pages(
    tmp_path_factory: pytest.TempPathFactory,
    demo_results: tuple[Any, Path],
    finetune_results: Any,
    distill_results: Any,
    explain_torch: Callable[[str], Any],
    explain_deployed: Callable[[str], Any],
    explain_rule: Callable[..., Any],
) -> dict[str, Path]:
    """One file of every kind of page."""
    folder = tmp_path_factory.mktemp("pages")
    files = {kind: folder / f"{kind}.html" for kind in KINDS}
    write_page(files["explain"], explain("lapis_tiny.cifar10", "sample:6"))
    network = random_network(LARGE)
    large = explain_network(network, images_for(network, 1)[0], model="large")
    write_page(files["explain-large"], large)
    write_page(files["explain-torch"], explain_torch("exact rows").explained)
    write_page(files["explain-recorded"], explain_rule("gaussian").explained)
    write_page(files["explain-table"], explain_deployed("table").explained)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_module, "payload", partial(page_module.payload, limit=40_000))
        write_page(files["explain-cut"], large)
    write_live_page(files["explain-live"], "lapis_tiny.cifar10")
    write_finetune_page(files["finetune"], finetune_results)
    write_distill_page(files["distill"], distill_results)
    return files | {"demo": demo_results[1]}


@pytest.fixture
def open_kind(open_file: Callable[..., Any], pages: dict[str, Path]) -> Callable[..., Any]:
    def open_it(kind: str, view: dict[str, Any]) -> Any:
        page = open_file(pages[kind], **view)
        page.evaluate("window.Lapis?.ready")
        page.evaluate("window.Lapis?.live?.weighed")
        return page

    return open_it


@pytest.mark.parametrize(
    ("kind", "view"), [*((kind, view) for kind in WHOLE for view in VIEWS), *((kind, "desktop") for kind in VARIANTS)]
)
def test_every_page_is_drawn_without_a_complaint(open_kind: Callable[..., Any], kind: str, view: str) -> None:
    page = open_kind(kind, VIEWS[view])
    PICTURES.mkdir(parents=True, exist_ok=True)
    file = PICTURES / f"{kind}-{view}.png"
    page.screenshot(path=file, full_page=True)
    picture = np.asarray(Image.open(file).convert("L"))
    assert picture.shape[1] == VIEWS[view]["viewport"]["width"]
    assert (picture.mean() < 100) == (view == "dark")
    assert len(np.unique(picture)) > 100


@pytest.mark.parametrize("kind", KINDS)
def test_on_a_phone_every_label_is_whole_and_nothing_is_outside(open_kind: Callable[..., Any], kind: str) -> None:
    page = open_kind(kind, PHONE)
    broken = page.evaluate(
        """(labels) => [...document.querySelectorAll(labels)].filter((node) => {
            if (!node.checkVisibility() || node.closest('.wide, .headline')) return false;
            const walker = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
            const lines = [];
            while (walker.nextNode()) {
                if (walker.currentNode.parentElement.closest('select, .wide')) continue;
                const range = document.createRange();
                range.selectNodeContents(walker.currentNode);
                const boxes = [...range.getClientRects()].filter((box) => box.width > 1);
                if (new Set(boxes.map((box) => Math.round(box.top))).size > 1) return true;
                lines.push(...boxes);
            }
            const host = node.getBoundingClientRect();
            const hides = getComputedStyle(node).overflowX !== 'visible';
            return hides && lines.some((box) => box.right > host.right + 1);
        }).map((node) => node.outerHTML.slice(0, 120))""",
        LABELS,
    )
    assert broken == []
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    outside = page.evaluate("""[...document.querySelectorAll('main *')].filter((node) => {
        const box = node.getBoundingClientRect();
        return box.width && box.right > 391 && !node.closest('.scroll');
    }).map((node) => node.outerHTML.slice(0, 80))""")
    assert outside == []


# Colours differ by scheme and layout by width: two runs meet every colour and every layout.
@pytest.mark.parametrize(
    ("kind", "scheme"), [*((kind, "light") for kind in WHOLE), *((kind, "dark") for kind in KINDS)]
)
def test_axe_finds_nothing_serious(open_kind: Callable[..., Any], kind: str, scheme: str) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not installed: make tools/biome/node_modules/.ready")
    page = open_kind(kind, {**(DESKTOP if scheme == "light" else PHONE), "color_scheme": scheme})
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run({resultTypes: ['violations']})")
    assert len(found["passes"]) > 20
    serious = [
        (each["id"], node["html"][:160], node["failureSummary"])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
    assert serious == []


STOP = """() => {
    const node = document.activeElement;
    if (node === document.body) return null;
    const box = node.getBoundingClientRect();
    const style = getComputedStyle(node);
    return {
        name: node.getAttribute('aria-label') || node.textContent.trim() || node.closest('label')?.textContent,
        ring: style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2,
        seen: box.width > 0 && box.bottom > 0 && box.top < innerHeight,
        at: [...document.querySelectorAll('*')].indexOf(node),
    };
}"""


def tab_stops(page: Any, limit: int = 80) -> list[dict[str, Any]]:
    stops: list[dict[str, Any]] = []
    for _ in range(limit):
        page.keyboard.press("Tab")
        stop = page.evaluate(STOP)
        if stop is None:
            return stops
        stops.append(stop)
    raise AssertionError(f"after {limit} tabs the walk has not left the page: {[stop['name'] for stop in stops]}")


@pytest.mark.parametrize("kind", WHOLE)
def test_the_keyboard_walks_through_in_few_steps(open_kind: Callable[..., Any], kind: str) -> None:
    page = open_kind(kind, DESKTOP)
    stops = tab_stops(page)
    assert 1 <= len(stops) <= 34
    assert all(stop["name"] and stop["ring"] and stop["seen"] for stop in stops), stops
    order = [stop["at"] for stop in stops]
    assert order == sorted(order)
