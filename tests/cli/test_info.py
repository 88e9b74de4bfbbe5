"""`lapis info` names versions, what does not fit, and what a model takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import lapis
from lapis import Session, assets, native
from lapis.cli import main
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK

MODEL = "lapis_tiny.cifar10"
# A torchvision of another build, as far as an importer sees it.
MISFIT = "raise RuntimeError('operator torchvision::nms does not exist')\n"


@pytest.fixture
def broken_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A torchvision that cannot be imported, before any other on the path of new processes."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text(MISFIT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def test_info_is_readable_by_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--json"]) == EXIT_OK
    facts = json.loads(capsys.readouterr().out)
    assert facts["lapis"] == lapis.__version__
    assert facts["kernels"] == native.describe()


@pytest.mark.usefixtures("broken_torchvision")
def test_lapis_imports_whatever_torchvision_does() -> None:
    pytest.importorskip("torch", reason="lapis.nn and lapis.train need torch: pip install 'lapis-snn[train]'")
    public = ("convert", "deploy", "energy", "models", "nn", "ops", "pack", "report", "train", "cli.info")
    code = "; ".join(["import lapis", *(f"import lapis.{name}" for name in public)])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    failing = [sys.executable, "-c", "import torchvision"]
    assert subprocess.run(failing, capture_output=True, check=False).returncode != 0


def test_a_models_memory_is_stated_beside_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    path = assets.find(MODEL)
    assert path is not None
    assert main(["info", MODEL, "--json"]) == EXIT_OK
    model = json.loads(capsys.readouterr().out)
    session = Session(MODEL)
    assert model["bytes"] == path.stat().st_size
    assert {"weights": model["weights_bytes"], "working": model["working_bytes"]} == session.memory()
    assert model["executor"] == session.executor
    assert main(["info", str(path)]) == EXIT_OK
    printed = capsys.readouterr().out
    assert f"{path.stat().st_size:,} bytes" in printed
    assert "airplane, automobile" in printed
    assert f"{model['weights_bytes'] / 1e6:.2f} MB of weights" in printed


def test_info_of_no_model_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "nowhere.safetensors"]) == EXIT_BAD_INPUT
    assert "nowhere.safetensors" in capsys.readouterr().err
