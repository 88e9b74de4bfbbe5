"""Every command with a model, images and folders whose names attack the terminal: escapes, one error, no traceback."""

from __future__ import annotations

import dataclasses
import json
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from lapis import pack
from lapis._util.run_layout import CHECKPOINT_KEY
from lapis.cli import main
from lapis.cli.app import VERBS
from lapis.deploy.network import Network
from lapis.nn.checkpoint import save_network
from tests.networks import small_config, small_model, wide_network

FORGED = "lapis: PASS: every executor agrees"
TITLE = "\x1b]0;owned\x07"
MARKUP = "[red]x[/]y[/bold]"
PAGE = "<script>alert(1)</script>"
ATTACKS = (f"{TITLE}cat", f"dog\n{FORGED}", MARKUP, PAGE, "\u202egnp", "\x9b2J\r", "plain")
# A file's name has no slash, and may hold bytes that are no text.
FILE = f"{TITLE}\n{FORGED}[red]\udc80"


@pytest.fixture(scope="module")
def network() -> Network:
    return dataclasses.replace(wide_network(depth=1), class_names=ATTACKS)


@pytest.fixture
def hostile(network: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a checkpoint, images, sorted images and a result, all with hostile names."""
    monkeypatch.chdir(tmp_path)
    Path(f"{FILE}.safetensors").write_bytes(pack.pack(network))
    pixels = np.random.default_rng(0).integers(0, 256, (24, 20, 3), dtype=np.uint8)
    for name in ATTACKS:
        folder = Path("sorted") / name.replace("/", "_")
        folder.mkdir(parents=True)
        for number in range(5):
            Image.fromarray(pixels).save(folder / f"{FILE}{number}.png")
    Path("loose").mkdir()
    Image.fromarray(pixels).save(Path("loose") / f"{FILE}.png")
    (Path("loose") / f"broken{FILE}.png").write_text("no image")
    Path(f"{FILE}.json").write_text(json.dumps({"tally": {}, "config": {TITLE: FORGED}, "model": FILE}))
    model, _ = small_model(small_config(classes=len(ATTACKS)))
    save_network(Path(f"run{FILE}.safetensors"), model, {"state": f"{TITLE}\n{FORGED}", "class_names": list(ATTACKS)})
    return tmp_path


MODEL, RUN, RESULT = f"{FILE}.safetensors", f"run{FILE}.safetensors", f"{FILE}.json"
WALK: dict[str, list[list[str]]] = {
    "info": [
        ["info", MODEL],
        ["info", FILE],
        ["--debug", "info", FILE],
        ["info", RUN],
        ["info", MODEL, "--tensors"],
        ["info", "--check", f"--{FILE}"],
    ],
    "train": [["train", "smoke", "--start", MODEL, "--out", FILE], ["train", FILE], ["train", "smoke", "--set", FILE]],
    "distill": [
        ["distill", FILE, "--images", "sorted", "-o", "new.safetensors"],
        ["distill", RUN, "--images", "loose", "-o", f"{FILE}.new.safetensors"],
        ["distill", RUN, "--images", f"no{FILE}", "-o", "new.safetensors", "--names", RESULT],
    ],
    "finetune": [["finetune", "sorted", "--start", FILE], ["finetune", f"no{FILE}"]],
    "evaluate": [
        ["evaluate", MODEL, "--data", "sorted"],
        ["evaluate", RUN, "--data", "sorted", "--limit", "7"],
        ["evaluate", MODEL, "--data", "loose"],
    ],
    "simulate": [["simulate", MODEL, "-n", "1"], ["simulate", RUN, "-n", "1", "--jitter", "1"]],
    "verify": [["verify", MODEL, "-n", "1"], ["verify", RUN, "-n", "1"]],
    "pack": [["pack", MODEL], ["pack", RUN, "-o", f"{FILE}.out.safetensors"], ["pack", RUN]],
    "predict": [
        ["predict", MODEL, "loose"],
        ["predict", RUN, f"loose/{FILE}.png", "--top-k", "7"],
        ["predict", MODEL, f"no{FILE}", f"{FILE}*", f"--{FILE}"],
        ["predict", MODEL, "sample:1", f"--{FILE}"],
        ["predict", MODEL, "loose", "--csv", f"{FILE}.csv"],
    ],
    "energy": [
        ["energy", MODEL, "--data", "sorted"],
        ["energy", RUN, "--activity", "all=0.3"],
        ["energy", FILE],
        ["energy", MODEL, "--costs", RESULT],
        ["energy", "--activities", RESULT],
        ["energy", MODEL, "--activity", f"{FILE}=1"],
    ],
    "explain": [
        ["explain", MODEL, f"loose/{FILE}.png", "-o", f"{FILE}.html"],
        ["explain", RUN, f"loose/broken{FILE}.png"],
    ],
    "export": [["export", MODEL, "-o", f"{FILE}.onnx"], ["export", FILE]],
    "publish": [["publish", RUN, FILE], ["publish", FILE, "folder"]],
    "demo": [["demo", "--model", MODEL, "--out", FILE], ["demo", "--model", RUN]],
}


def test_the_walk_has_every_command() -> None:
    assert WALK.keys() >= VERBS.keys()


@pytest.mark.parametrize("verb", WALK)
@pytest.mark.usefixtures("hostile")
def test_no_command_lets_a_name_act_on_the_terminal(verb: str, capfd: pytest.CaptureFixture[str]) -> None:
    for words in WALK[verb]:
        main(words)
        out, err = capfd.readouterr()
        shown = out + err
        assert shown, words
        assert shown.replace("\n", "").isprintable(), words
        assert not any(line.strip().startswith(FORGED) for line in shown.splitlines()), words
        assert ("Traceback" in shown) == ("--debug" in words), words


@pytest.mark.usefixtures("hostile")
def test_names_that_look_like_html_stay_text_in_the_page(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", MODEL, f"loose/{FILE}.png", "-o", "page.html"]) == 0
    capfd.readouterr()
    assert PAGE not in Path("page.html").read_text()


@pytest.mark.usefixtures("hostile")
def test_a_terminal_of_another_encoding_gets_escapes(capfd: pytest.CaptureFixture[str]) -> None:
    Path("loose/Katze-猫.png").write_bytes(Path(f"loose/{FILE}.png").read_bytes())
    sys.stdout.reconfigure(encoding="ascii")  # type: ignore[union-attr]
    try:
        assert main(["predict", MODEL, "loose/Katze-猫.png"]) == 0
    finally:
        sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    assert r"Katze-\u732b.png" in capfd.readouterr().out


def checkpoint(changes: dict[str, Any]) -> bytes:
    """A checkpoint whose metadata has some fields changed; a value may be JSON text that Python would not write."""
    model, _ = small_model(small_config())
    path = Path("checkpoint.safetensors")
    save_network(path, model, {})
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + length])
    metadata = json.loads(table["__metadata__"][CHECKPOINT_KEY])
    fields = {**{name: json.dumps(value) for name, value in metadata.items()}, **changes}
    table["__metadata__"][CHECKPOINT_KEY] = "{" + ",".join(f"{json.dumps(n)}:{t}" for n, t in fields.items()) + "}"
    header = json.dumps(table).encode()
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


def normal(mean: str) -> str:
    return f'{{"size":8,"mean":[{mean},0,0],"std":[1,1,1],"interpolation":"bicubic","crop":1.0}}'


METADATA = {
    "an integer of 5,000 digits": {"step": "1" * 5000},
    "an integer of 400 digits": {"preprocess": normal("1" * 400)},
    "a mean that overflows": {"preprocess": normal("1e308")},
    "an infinite mean": {"preprocess": normal("1e999")},
    "not a number": {"preprocess": normal("NaN")},
    "a lone surrogate": {"class_names": '["\\ud800", "b", "c"]'},
    "names that are no list": {"class_names": "7"},
    "names that are no text": {"class_names": "[1, 2, 3]"},
    "a configuration of the wrong type": {"config": '{"relation": ["a"]}'},
    "a configuration of numbers": {"config": '{"width": 1e400}'},
    "a preprocessing that is no table": {"preprocess": "[]"},
    "deep nesting": {"more": "[" * 100_000 + "]" * 100_000},
}


@pytest.mark.parametrize("damage", METADATA)
def test_damaged_metadata_of_a_checkpoint_is_one_error(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.safetensors").write_bytes(checkpoint(METADATA[damage]))
    for words in (
        ["predict", "bad.safetensors", "sample:1"],
        ["pack", "bad.safetensors"],
        ["evaluate", "bad.safetensors"],
    ):
        assert main(words) == 2
        out, err = capfd.readouterr()
        assert (out, err.count("\n")) == ("", 1), err
        assert err.startswith("lapis: error: ")


def huge_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return len(data).to_bytes(4, "big") + kind + data + zlib.crc32(kind + data).to_bytes(4, "big")

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress(b"\0" * min(1 << 20, (width + 1) * height))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


BOMBS: dict[str, Callable[[], bytes]] = {
    "of 400 million pixels": lambda: huge_png(20_000, 20_000),
    "of 150 million pixels": lambda: huge_png(15_000, 10_000),
    "of 100 million pixels that are not there": lambda: huge_png(10_000, 10_000),
    "of four billion pixels": lambda: huge_png(65_535, 65_535),
    "that would be resized to a ribbon": lambda: huge_png(1_000_000, 1),
    "that is high and narrow": lambda: huge_png(1, 1_000_000),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_an_image_that_explodes_is_one_error(bomb: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bomb.png").write_bytes(BOMBS[bomb]())
    code = main(["predict", "lapis_tiny.cifar10", str(tmp_path / "bomb.png"), "sample:1"])
    out, err = capfd.readouterr()
    assert (code, err.count("\n")) == (3, 1), err
    assert err.startswith("lapis: error: cannot read image ")
    assert "sample:1" in out
