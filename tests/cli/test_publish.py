"""`lapis publish` writes a repository that other tools read, with figures that its commands gave, or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from lapis import Session, models
from lapis.cli import main
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.nn import LapisViT, save_network
from lapis.preprocess import Preprocess
from lapis.report.card import Facts, Measured, card
from tests.docs.given import make
from tests.networks import small_config, small_model

CONFIG = small_config(classes=10)
RULE = Preprocess(CONFIG.image_size, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("publish")


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    path = place / "run" / "best.safetensors"
    names = [f"class{number}" for number in range(10)]
    save_network(path, small_model(CONFIG)[0], {"preprocess": RULE.to_dict(), "class_names": names, "state": "trained"})
    return path.parent


@pytest.fixture(scope="module")
def published(trained: Path, place: Path) -> Path:
    make("cifar", place)
    folder = place / "new" / "my_net"
    options = ["--data", str(place / "cifar"), "-n", "2", "--dataset", "Ten | images", "--license", "mit"]
    assert main(["publish", str(trained), str(folder), *options]) == EXIT_OK
    return folder


def test_the_folder_is_the_network_for_every_reader(published: Path, trained: Path, timm: ModuleType) -> None:
    import lapis.nn.timm_models  # noqa: F401

    original = models.load(trained)
    images = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
    packed = Session(published / "packed.safetensors")
    np.testing.assert_array_equal(packed.run(images), Session(original.network).run(images))
    back = LapisViT.from_pretrained(published)
    assert (back.config, back.preprocess, back.about["state"]) == (CONFIG, RULE, "trained")
    x = torch.randn(2, 3, 8, 8)
    by_timm = timm.create_model(f"local-dir:{published}", pretrained=True).eval()
    assert torch.equal(back(x), original.torch()(x))
    assert torch.equal(by_timm(x), back(x))


def test_onnx_takes_pixel_values_and_gives_the_integers_of_the_session(published: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed: pip install 'lapis-snn[onnx]'")
    # Every byte in every channel, among them the ends, where rounding errors would go beyond.
    images = np.random.default_rng(1).permutation(np.arange(12 * 192) % 256).astype(np.uint8).reshape(12, 8, 8, 3)
    values = ((images / np.float32(255) - np.array(RULE.mean, np.float32)) / np.array(RULE.std, np.float32)).transpose(
        0, 3, 1, 2
    )
    file = runtime.InferenceSession(published / "onnx" / "model.onnx")
    found = file.run(["integer_logits"], {"pixel_values": values.astype(np.float32)})[0]
    np.testing.assert_array_equal(found, Session(published / "packed.safetensors").run_integers(images))


def test_without_onnx_the_folder_is_written_and_the_reason_given(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("find_spec", "_run"):
        monkeypatch.setattr(f"lapis.cli.publish.{name}", lambda *_: None)
    monkeypatch.setattr("lapis.cli.publish.card", lambda facts: "")
    assert main(["publish", str(trained), str(tmp_path / "net"), "-n", "1"]) == EXIT_OK
    assert "is left out; it needs the package onnx: " in capsys.readouterr().out
    assert not (tmp_path / "net" / "onnx").exists()


def test_figures_of_the_card_are_those_of_its_commands(published: Path, place: Path) -> None:
    text = (published / "README.md").read_text()
    records = {verb: json.loads((published / f"{verb}.json").read_text()) for verb in ("evaluate", "verify", "energy")}
    low, high = records["evaluate"]["interval95"]
    assert f"{records['evaluate']['top1']:.2f} % [{low:.2f}, {high:.2f}] | `lapis evaluate packed.safetensors" in text
    assert "`lapis verify packed.safetensors -n 2 --data DATA --json`" in text
    assert f"{records['energy']['energy_mj']:.4f} mJ | `lapis energy packed.safetensors" in text
    for row in records["energy"]["conventions"]:
        assert f"| {row['convention']} | {row['energy_mj']:.4f} |" in text
    assert "an estimate, not a measurement" in text
    # Where the images lie on this machine is told to nobody.
    texts = [path for path in published.rglob("*") if path.suffix in (".json", ".md")]
    assert len(texts) >= 5
    assert all(str(place) not in path.read_text() for path in texts)


def test_the_hub_reads_the_metadata_of_the_card(published: Path) -> None:
    package = pytest.importorskip(
        "huggingface_hub", reason="huggingface_hub is not installed: pip install 'lapis-snn[hub]'"
    )
    data = package.ModelCard.load(published / "README.md").data
    assert (data.license, data.pipeline_tag, data.library_name) == ("mit", "image-classification", "lapis")
    top1 = json.loads((published / "evaluate.json").read_text())["top1"]
    assert data.eval_results[0].metric_value == top1
    assert data.eval_results[0].dataset_name == "Ten | images"


def test_without_images_the_card_says_that_accuracy_was_not_measured() -> None:
    energy = {"config": CONFIG.to_dict(), "costs": {"name": "45nm", "node": "45 nm"}, "activities_from": "here",
              "conventions": [], "energy_mj": 1.0, "latency_steps": 9, "memory": "off"}  # fmt: skip
    verified = {"images": 2, "exact": True, "reference": "integers", "executors": {}}
    facts = Facts("a\nb", None, None, {"packed.safetensors": 3}, None, Measured("v", verified), Measured("e", energy))
    text = card(facts)
    assert "Accuracy was not measured" in text
    assert "# a b\n" in text
    assert "model-index" not in text
    assert "license" not in text


@pytest.mark.parametrize("what", ["foreign", "full", "no data"])
def test_a_failure_is_one_error_and_leaves_nothing(
    what: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, options, source = tmp_path / "new" / "net", ["-n", "1"], str(trained)
    expected = {"foreign": "train it first", "full": "name a new or empty folder", "no data": "lapis evaluate"}[what]
    if what == "foreign":
        source = str(tmp_path / "weights.pth")
        torch.save(LapisViT(CONFIG.dense()).state_dict(), source)
    elif what == "full":
        folder = trained
    else:
        options += ["--data", str(tmp_path / "nowhere")]
    before = sorted(path for path in tmp_path.rglob("*"))
    assert main(["publish", source, str(folder), *options]) == EXIT_BAD_INPUT
    said = capsys.readouterr().err.strip()
    assert expected in said
    assert "\n" not in said
    assert sorted(path for path in tmp_path.rglob("*")) == before
