"""The page of docs/howto/deploy.md, served as its reader would serve it: the engine answers as the session does."""

from __future__ import annotations

import functools
import http.server
import re
import shutil
import threading
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lapis import Session

ROOT = Path(__file__).resolve().parents[3]
GUIDE = ROOT / "docs/howto/deploy.md"
MODEL = ROOT / "docs/format-vector.safetensors"


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """A server of a folder with the page, the engine and a network."""
    page = re.search(r"```html\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.S)
    assert page is not None
    (tmp_path / "index.html").write_text(page[1], encoding="utf-8")
    for name in ("engine.js", "engine.wasm"):
        (tmp_path / name).write_bytes((files("lapis.report.page") / name).read_bytes())
    shutil.copy(MODEL, tmp_path / "model.safetensors")
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/index.html"
        server.shutdown()


def test_the_page_of_the_guide_answers_as_the_session(chromium: Any, address: str) -> None:
    grey = np.full((48, 64, 3), 128, np.uint8)
    expected = " ".join(str(logit) for logit in Session(MODEL).watch_integers(grey).logits[0])
    page = chromium.new_page()
    page.goto(address)
    page.get_by_text(expected, exact=True).wait_for()
    page.close()
