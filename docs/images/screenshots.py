"""Take the screenshots of this folder: python docs/images/screenshots.py [MODEL [IMAGE]].

Needs playwright (pip install playwright) and Debian's chromium; writes explain-{light,dark,phone}.png.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

HERE = Path(__file__).resolve().parent
VIEWS = {
    "explain-light": {"viewport": {"width": 1160, "height": 1090}, "color_scheme": "light"},
    "explain-dark": {"viewport": {"width": 1200, "height": 860}, "color_scheme": "dark"},
    "explain-phone": {"viewport": {"width": 390, "height": 1190}, "color_scheme": "light"},
}
# What each picture shows: where the page is scrolled to.
SCROLL = {"explain-light": "body", "explain-dark": ".explorer", "explain-phone": ".explorer"}


def main(model: str = "lapis_tiny_cifar10", image: str = "slice:6") -> None:
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        path = Path(folder) / "page.html"
        subprocess.run([sys.executable, "-m", "lapis.cli", "explain", model, image, "-o", path], check=True)
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--headless=new", "--no-sandbox"])
        for name, view in VIEWS.items():
            page = browser.new_context(**view).new_page()
            page.goto(path.as_uri())
            page.evaluate("Lapis.ready")
            page.evaluate("(place) => document.querySelector(place).scrollIntoView()", SCROLL[name])
            file = HERE / f"{name}.png"
            page.screenshot(path=file)
            Image.open(file).convert("RGB").save(file, optimize=True)
            print(f"{file}  {file.stat().st_size / 1e3:.0f} kB")
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
