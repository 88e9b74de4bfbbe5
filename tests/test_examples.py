"""The example scripts run as a reader would run them, and do what they say."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import lapis
from tests.docs.given import make

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# Whatever the tests import is what the scripts must import, installed or not.
SOURCE = Path(lapis.__file__).resolve().parents[1]
# What a device without torch sees: the import fails.
NO_TORCH = (
    "import runpy, sys; sys.modules['torch'] = None; del sys.argv[0]; runpy.run_path(sys.argv[0], None, '__main__')"
)

# transformers beside a torchvision and a torchaudio that do not fit torch, as on the package index.
BESIDE_TORCHVISION = (
    "import runpy, sys; from lapis.nn.pretrained import import_beside_torchvision as load; "
    "load('transformers.pipelines'); del sys.argv[0]; runpy.run_path(sys.argv[0], None, '__main__')"
)


def run(*arguments: str, cwd: Path) -> str:
    """Standard output of a Python process; warnings are errors in it too."""
    places = os.pathsep.join(filter(None, (str(SOURCE), os.environ.get("PYTHONPATH", ""))))
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": places},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The packed file of the training example after five steps, and what the example printed."""
    pytest.importorskip("torch", reason="the training example needs torch: pip install 'lapis-snn[train]'")
    folder = tmp_path_factory.mktemp("example")
    printed = run(str(EXAMPLES / "train_and_deploy.py"), "--epochs", "0.5", "--out", "run", cwd=folder)
    return folder / "run" / "packed.safetensors", printed


def test_every_example_is_run_here() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "attention_on_spikes.py",
        "attention_in_timm.py",
        "pipeline_in_transformers.py",
        "predict_with_ray.py",  # in test_ray.py
        "predict_without_torch.py",
        "train_and_deploy.py",
    }


def test_attention_on_spikes_shows_near_tokens_near(tmp_path: Path) -> None:
    printed = run("-c", NO_TORCH, str(EXAMPLES / "attention_on_spikes.py"), cwd=tmp_path)
    assert "code 5   |....   latency 0" in printed
    assert "[ 0  1 16]" in printed


def test_training_example_packs_what_it_proved(trained: tuple[Path, str]) -> None:
    file, printed = trained
    assert file.stat().st_size < 100_000
    assert "spikes: 0 of" in printed
    assert "engine: 0 of" in printed


def test_prediction_example_needs_no_torch(trained: tuple[Path, str], tmp_path: Path) -> None:
    file, _ = trained
    images = ["photo.png", "other.png"]
    for image in images:
        make(image, tmp_path)
    printed = run("-c", NO_TORCH, str(EXAMPLES / "predict_without_torch.py"), str(file), *images, cwd=tmp_path)
    answers = printed.splitlines()[1:]
    assert [line.split()[0] for line in answers] == images
    assert all(line.count("%") == 3 for line in answers)


def test_attention_in_timm_replaces_every_block_and_learns(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the example needs torch: pip install 'lapis-snn[train]'")
    if importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed: pip install timm")
    printed = run(str(EXAMPLES / "attention_in_timm.py"), cwd=tmp_path)
    assert "2 attention layers replaced, 4 heads, 4 registers" in printed
    first, last = (float(found) for found in re.findall(r"loss (\d+\.\d+)", printed))
    assert last < first


def test_the_pipeline_of_transformers_answers_as_the_session(trained: tuple[Path, str], tmp_path: Path) -> None:
    for package in ("transformers", "onnx", "onnxruntime"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed: pip install {package}")
    run("-m", "lapis.cli", "publish", str(trained[0]), "net", "-n", "1", cwd=tmp_path)
    make("photo.png", tmp_path)
    script = str(EXAMPLES / "pipeline_in_transformers.py")
    printed = run("-c", BESIDE_TORCHVISION, script, "net/onnx", "photo.png", cwd=tmp_path)
    best = lapis.Session(tmp_path / "net" / "packed.safetensors").predict(tmp_path / "photo.png", top_k=3)
    answers = [f"{one.label} {100 * one.score:.1f} %" for one in best]
    assert printed.splitlines() == ["  ".join(["photo.png", *answers])]
