"""`lapis export` as a person uses it, and `lapis verify --only onnx`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.synthetic import random_network
from lapis._util.hints import install_command
from lapis.cli import main
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.pack import save
from tests.networks import small_config

NEEDS_ONNX = "onnx is not installed: pip install 'lapis-snn[onnx]'"


@pytest.fixture
def packed(tmp_path: Path) -> Path:
    path = tmp_path / "small.safetensors"
    save(path, random_network(small_config(classes=10)))
    return path


def test_a_packed_file_is_exported_where_asked(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx = pytest.importorskip("onnx", reason=NEEDS_ONNX)
    target = packed.with_name("out.onnx")
    assert main(["export", str(packed), "-o", str(target), "--json"]) == EXIT_OK
    record = json.loads(capsys.readouterr().out)
    assert (record["file"], record["bytes"]) == (str(target), target.stat().st_size)
    onnx.checker.check_model(onnx.load(target), full_check=True)


def test_verify_compares_codes_and_every_setting(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnx", reason=NEEDS_ONNX)
    pytest.importorskip("onnxruntime", reason=NEEDS_ONNX)
    assert main(["verify", str(packed), "--only", "onnx", "-n", "4", "--quiet", "--json"]) == EXIT_OK
    executors = json.loads(capsys.readouterr().out)["executors"]
    settings = {f"onnx {level} {threads}" for level in ("none", "basic", "extended", "all") for threads in (1, 2)}
    assert set(executors) == {"integers", "onnx codes", *settings}
    assert executors["onnx codes"]["codes"] > 0
    assert {row["images_with_other_logits"] for row in executors.values()} == {0}


def test_another_ending_than_onnx_is_refused(packed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(packed), "-o", "model.xml"]) == EXIT_BAD_INPUT
    assert "use model.xml.onnx" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["export"], ["verify", "--only", "onnx"]])
def test_a_missing_package_is_named_with_its_extra(
    words: list[str], packed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(packed.parent)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert main([*words, str(packed)]) == EXIT_BAD_INPUT
    assert install_command("onnx") in capsys.readouterr().err
    assert not list(packed.parent.glob("*.onnx"))
