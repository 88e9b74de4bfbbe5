"""Take the screenshots of this folder: python docs/images/screenshots.py [MODEL [IMAGE]].

Needs playwright (pip install playwright) and Debian's chromium; writes explain-{light,dark,phone}.webp.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Literal, NamedTuple

from PIL import Image
from playwright.sync_api import ViewportSize, sync_playwright

HERE = Path(__file__).resolve().parent


class View(NamedTuple):
    """The window of a picture, and the element of the page that is scrolled to its top."""

    width: int
    height: int
    scheme: Literal["light", "dark"]
    top: str


VIEWS = {
    "explain-light": View(1160, 980, "light", "body"),
    "explain-dark": View(1200, 860, "dark", ".explorer .lens"),
    "explain-phone": View(390, 844, "light", "#latencies"),
}


def main(model: str = "lapis_tiny.cifar10", image: str = "sample:6") -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "page.html"
        subprocess.run([sys.executable, "-m", "lapis.cli", "explain", model, image, "-o", path], check=True)
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--headless=new", "--no-sandbox"])
        for name, view in VIEWS.items():
            size = ViewportSize(width=view.width, height=view.height)
            page = browser.new_context(viewport=size, color_scheme=view.scheme).new_page()
            page.goto(path.as_uri())
            page.evaluate("Lapis.ready")
            page.evaluate("(place) => document.querySelector(place).closest('.card, body').scrollIntoView()", view.top)
            file = HERE / f"{name}.webp"
            # A third of the bytes of a PNG.
            Image.open(BytesIO(page.screenshot())).convert("RGB").save(file, quality=88, method=6)
            print(f"{file}  {file.stat().st_size / 1e3:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
