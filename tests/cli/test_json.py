"""`--json` of every command: one object on standard output, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from lapis import pack
from lapis.cli import main
from lapis.cli.app import VERBS, app
from lapis.convert.fold import from_model
from lapis.data.packaged import CIFAR10_CLASSES
from lapis.errors import EXIT_OK
from lapis.nn import save_network
from tests.networks import small_config, small_model
from tests.pictures import write_class_folders

TINY = (
    "--set model.depth=1 --set model.width=16 --set model.heads=2 --set model.patch_size=8 --set data.limit=16 "
    "--set data.test_limit=10 --set data.calibrate=8 --set optim.batch=16 --set optim.epochs=1"
)
# Every command, and every way of it that prints something else.
LINES = [
    "info",
    "info MODEL --tensors",
    "info --check",
    "train",
    "train smoke --show",
    f"train smoke {TINY} --out run",
    "finetune pictures --start MODEL --epochs 1 --threads 1 --out tuned",
    "evaluate MODEL --data pictures",
    "evaluate CHECKPOINT --data pictures",
    "simulate MODEL -n 1",
    "verify MODEL -n 1",
    "pack CHECKPOINT -o packed.safetensors",
    "export MODEL -o model.onnx",
    "publish MODEL repository -n 1",
    "predict MODEL --classes",
    "predict MODEL sample:0 sample:1 --csv answers.csv",
    "energy MODEL --compare",
    "explain MODEL sample:0",
    "demo --model MODEL",
]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a packed network, its checkpoint, pictures, and the result of an evaluation."""
    folder = tmp_path_factory.mktemp("given")
    model, _ = small_model(small_config(image_size=16, patch_size=8, classes=10, width=12, window=7), seed=5)
    pack.save(folder / "model.safetensors", from_model(model, class_names=CIFAR10_CLASSES))
    save_network(folder / "checkpoint.safetensors", model, {"class_names": list(CIFAR10_CLASSES)})
    write_class_folders(folder / "pictures", 6)
    return folder


def _only_object(text: str) -> dict[str, Any]:
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


def _leaves(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            inner = command.get_command(context, word)
            assert inner is not None
            yield from _leaves(f"{name} {word}", inner)
    else:
        yield name, command


def test_every_command_has_the_option_and_a_line_here() -> None:
    for name, command in _leaves("lapis", app):
        assert "--json" in [word for one in command.params for word in one.opts], name
    assert {line.split()[0] for line in LINES} >= set(VERBS) - {"distill"}  # tests/cli/test_distill.py has it


@pytest.mark.parametrize("line", LINES, ids=[" ".join(line.split()[:3]) for line in LINES])
def test_the_output_is_one_object(
    line: str, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if line.startswith("export"):
        pytest.importorskip("onnx", reason="onnx is not installed: pip install 'lapis-snn[onnx]'")
    monkeypatch.chdir(tmp_path)
    words = {"MODEL": given / "model.safetensors", "CHECKPOINT": given / "checkpoint.safetensors"}
    words["pictures"] = given / "pictures"
    assert main([*(str(words.get(word, word)) for word in line.split()), "--json"]) == EXIT_OK
    assert _only_object(capfd.readouterr().out)
