"""`lapis explain` as a person uses it."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from lapis import pack
from lapis._util.hints import install_command
from lapis.cli import main
from lapis.data.packaged import CIFAR10_CLASSES, packaged_images
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from tests.networks import small_config, small_model

CONFIG = small_config(image_size=24, patch_size=8, classes=10, width=12)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same network as a checkpoint and packed, and a picture of another size."""
    from lapis.convert.fold import from_model
    from lapis.nn import save_network

    folder = tmp_path_factory.mktemp("models")
    model, _ = small_model(CONFIG, seed=1)
    packed, checkpoint, picture = folder / "packed.safetensors", folder / "run.safetensors", folder / "frog.png"
    pack.save(packed, from_model(model, class_names=CIFAR10_CLASSES))
    save_network(checkpoint, model, {"class_names": list(CIFAR10_CLASSES)})
    Image.fromarray(packaged_images().pixels[4]).resize((50, 70)).save(picture)
    return {"packed": packed, "checkpoint": checkpoint, "picture": picture}


@pytest.mark.parametrize("kind", ["packed", "checkpoint"])
def test_a_page_is_written_for_a_packed_file_and_a_checkpoint(
    files: dict[str, Path], kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert main(["explain", str(files[kind]), str(files["picture"]), "-o", str(out), "--json"]) == EXIT_OK
    facts = json.loads(capsys.readouterr().out)
    assert facts["bytes"] == out.stat().st_size < 5_000_000
    assert facts["prediction"] in CIFAR10_CLASSES
    assert 0 < facts["spikes"] < facts["neurons"]
    assert "frog.png" in out.read_text(encoding="utf-8")


def test_a_packaged_image_brings_its_label(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "page.html"
    assert main(["explain", str(files["packed"]), "sample:0", "-o", str(out), "-q"]) == EXIT_OK
    assert capsys.readouterr().out.strip() == str(out)
    assert f'"label":"{CIFAR10_CLASSES[packaged_images().labels[0]]}"' in out.read_text(encoding="utf-8")


def test_a_packed_file_is_explained_without_torch(files: dict[str, Path], tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from lapis.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["explain", str(files["packed"]), str(files["picture"]), "-o", str(tmp_path / "page.html")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_OK, done.stderr
    assert (tmp_path / "page.html").is_file()


def test_a_checkpoint_without_torch_says_what_to_install(files: dict[str, Path], tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = None; from lapis.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ["explain", str(files["checkpoint"]), "sample:1", "-o", str(tmp_path / "page.html")]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert done.returncode == EXIT_BAD_INPUT
    assert install_command("train") in done.stderr


@pytest.mark.parametrize(
    ("model", "image", "says"),
    [
        ("no_such_model", "sample:0", "neither a file, a run's folder nor a packaged model"),
        ("packed", "sample:400", "sample:0 to sample:399"),
        ("packed", "sample:x", "sample:0 to sample:399"),
        ("packed", "nowhere.png", "nowhere.png"),
        ("packed", "packed", "is not an image"),
    ],
)
def test_bad_input_is_one_clear_error(
    files: dict[str, Path], model: str, image: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(files.get(model, model)), str(files.get(image, image)), "-o", str(tmp_path / "page.html")]
    assert main(["explain", *words]) == EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert error.startswith("lapis: error:")
    assert says in error
    assert not (tmp_path / "page.html").exists()


def test_a_live_page_holds_network_and_engine_and_needs_no_image(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "live.html"
    assert main(["explain", "--live", str(files["packed"]), "-o", str(out), "--json"]) == EXIT_OK
    assert json.loads(capsys.readouterr().out) == {"page": str(out), "bytes": out.stat().st_size}
    assert base64.b64encode(files["packed"].read_bytes()).decode() in out.read_text(encoding="utf-8")
    assert main(["explain", "--live", str(files["packed"]), str(files["picture"]), "-o", str(out), "-q"]) == EXIT_OK
    assert capsys.readouterr().out.strip() == str(out)
    assert '"samples":[{"name":"frog.png"' in out.read_text(encoding="utf-8")


def test_a_live_page_of_a_checkpoint_packs_it_first(files: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "live.html"
    assert main(["explain", "--live", str(files["checkpoint"]), "-o", str(out), "-q"]) == EXIT_OK
    assert '"file":"' in out.read_text(encoding="utf-8")


def test_a_network_with_float_weights_has_no_live_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from lapis.nn import save_network

    path = tmp_path / "float.safetensors"
    save_network(path, small_model(CONFIG.replace(weight_bits=32), seed=1)[0])
    assert main(["explain", "--live", str(path), "-o", str(tmp_path / "live.html")]) == EXIT_BAD_INPUT
    assert "A live page runs deployed networks" in capsys.readouterr().err


def test_without_an_image_only_a_live_page_can_be_written(
    files: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", str(files["packed"]), "-o", str(tmp_path / "page.html")]) == EXIT_BAD_INPUT
    assert "no IMAGE was given" in capsys.readouterr().err
