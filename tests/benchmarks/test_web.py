"""The benchmark in the browser runs with the real packages; times themselves are not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import web
from benchmarks.common import main
from benchmarks.synthetic import random_network
from lapis.config import preset
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK, LapisError
from lapis.pack import save

pytestmark = pytest.mark.usefixtures("needs_kernels")


def test_every_runtime_is_timed_after_its_answers_were_compared(tmp_path: Path) -> None:
    try:
        web.check_needs()
    except LapisError as error:
        pytest.skip(str(error))
    config = preset("lapis_tiny", image_size=32, depth=1, classes=10).deployed()
    save(tmp_path / "small.safetensors", random_network(config, 0))
    # A process of its own: a browser of other tests may be open in this one, and two cannot be.
    words = ["--model", str(tmp_path / "small.safetensors"), "--rounds", "2", "--json"]
    ran = subprocess.run([sys.executable, "-m", "benchmarks.web", *words], capture_output=True, text=True)
    if ran.returncode != EXIT_OK and "is there a network?" in ran.stderr:
        pytest.skip("npm could not install onnxruntime-web: no network")
    assert ran.returncode == EXIT_OK, ran.stderr
    rows: list[dict[str, Any]] = json.loads(ran.stdout)["rows"]
    assert [row["runtime"] for row in rows][:5] == [web.OURS, web.PLAIN, web.SAME, web.INT8, web.FLOAT]
    assert rows[5]["runtime"].startswith("native, ")
    assert all(row["ms_per_image"] > 0 for row in rows)


@pytest.mark.parametrize("lacks", ["module", "browser"])
def test_what_is_missing_is_one_sentence(
    lacks: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "NEEDED", {"no_such_module": "pip install it"} if lacks == "module" else {})
    monkeypatch.setattr(web, "CHROMIUM", Path("/nowhere/chromium"))
    assert main(web.command, []) == EXIT_BAD_INPUT
    said = capsys.readouterr().err
    words = {"module": "needs no_such_module: pip install it", "browser": "no browser at /nowhere/chromium"}
    assert words[lacks] in said
    assert said.count("\n") == 1
