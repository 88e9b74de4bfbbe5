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
from lapis import models, pack
from tests.docs.given import make

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
# Whatever the tests import is what the scripts must import, installed or not.
SOURCE = Path(lapis.__file__).resolve().parents[1]
# What a device without torch sees: the import fails.
NO_TORCH = (
    "import runpy, sys; sys.modules['torch'] = None; del sys.argv[0]; runpy.run_path(sys.argv[0], None, '__main__')"
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
        "attention_in_spikingjelly.py",
        "attention_in_timm.py",
        "neurobench_table.py",
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


def test_attention_in_spikingjelly_learns_and_is_counted(tmp_path: Path) -> None:
    pytest.importorskip("spikingjelly", reason="spikingjelly is not installed: pip install spikingjelly")
    printed = run(str(EXAMPLES / "attention_in_spikingjelly.py"), cwd=tmp_path)
    first, last = (float(found) for found in re.findall(r"loss (\d+\.\d+)", printed))
    assert last < first / 2
    counts = dict(re.findall(r"(\w+)\.default +([\d,]+)", printed))
    assert all(int(counts[name].replace(",", "")) > 0 for name in ("mm", "l1_distance", "bmm"))


# A torchvision of another build than torch misses these operators, and NeuroBench imports it.
WITH_TORCHVISION = """
import runpy, sys, torch
for name in ("nms", "qnms"):
    if not hasattr(torch.ops.torchvision, name):
        torch.library.define(f"torchvision::{name}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
del sys.argv[0]
runpy.run_path(sys.argv[0], None, "__main__")
"""


def test_neurobench_prints_its_table_for_the_packaged_network(tmp_path: Path) -> None:
    pytest.importorskip("neurobench", reason="neurobench is not installed: pip install neurobench")
    make("pictures", tmp_path)
    printed = run("-c", WITH_TORCHVISION, str(EXAMPLES / "neurobench_table.py"), "pictures/val", cwd=tmp_path)
    table = dict(line.split(maxsplit=1) for line in printed.splitlines())
    assert int(table["PackedFootprint"]) == len(pack.pack(models.load("lapis_tiny.cifar10").network))
    assert 0 < float(table["FirstSpikeSparsity"]) < 1
    assert "Effective_ACs" in table["FirstSpikeOperations"]
