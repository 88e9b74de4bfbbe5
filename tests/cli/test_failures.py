"""A command that fails leaves nothing behind: no file, no folder, not even an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapis.cli import main
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.pack import save
from tests.networks import wide_network
from tests.pictures import write_class_folders

# Every command that writes, made to fail as late as bad input can. NEW is a folder that does not exist yet, MODEL a
# packed network, FILE something that is no folder. Each with a part of the error, so that it fails for its own reason.
FAILURES = {
    "train smoke --out NEW/run --start none.safetensors": "no such file",
    "train smoke --out NEW/run --data NEW": "takes no data folder",
    "train smoke --out NEW/run --set optim.batch=1000": "exceeds the 320",
    "train smoke --out NEW/run --resume": "no run to resume",
    "train smoke --out NEW/run --teacher none.safetensors": "no such file",
    "train smoke --out FILE/run": "is a file",
    "train cifar10_tiny --data none": "none is not a folder",
    "finetune none": "none is not a folder",
    "finetune pictures --out FILE/run": "cannot make the folder",
    "finetune pictures --start none.safetensors --out NEW": "no such file",
    "finetune pictures --set optim.rate=1 --out NEW": "unknown setting",
    "finetune pictures --teacher none.safetensors": "no such file",
    "demo --model none.safetensors": "no such file",
    "demo --model MODEL --out NEW/demo": "3 other classes",
    "demo --out FILE/demo": "is a file",
    "pack none.safetensors -o NEW/packed.safetensors": "no such file",
    "pack MODEL -o packed.safetensors": "packed already",
    "pack MODEL --affinity-bits 8 -o MODEL --force": "is an input",
    "pack MODEL --affinity-bits 8 -o FILE": "add --force",
    "predict MODEL none.png --csv answers.csv": "No such file",
    "predict MODEL sample:0 --csv NEW/answers.csv": "there is no folder",
    "predict MODEL sample:0 --csv FILE": "add --force",
    "predict MODEL pictures --csv pictures/../pictures/airplane/3.png --force": "is an input",
    "predict MODEL sample:0 --csv FILE/answers.csv": "is a file",
    "explain MODEL none.png -o page.html": "No such file",
    "explain MODEL pictures/airplane/3.png -o pictures/airplane/3.png --force": "is an input",
    "explain MODEL sample:0 -o MODEL": "is an input",
    "explain MODEL sample:0 -o FILE/page.html": "is a file",
    "finetune pictures --out pictures": "also an input",
    "export MODEL -o MODEL.onnx/x.onnx": "there is no folder",
    "evaluate MODEL --data none": "none is not a folder",
}


@pytest.mark.parametrize(("line", "message"), FAILURES.items(), ids=list(FAILURES))
def test_nothing_is_left_of_a_command_that_failed(
    line: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    # Three classes: the demo, whose images have ten, refuses it only after it was opened.
    save(tmp_path / "model.safetensors", wide_network(depth=1, classes=3))
    (tmp_path / "file").write_text("not a folder")
    write_class_folders(tmp_path / "pictures", 6)
    before = sorted(tmp_path.rglob("*"))
    words = {"NEW": str(tmp_path / "new"), "MODEL": "model.safetensors", "FILE": "file"}
    for name, value in words.items():
        line = line.replace(name, value)
    assert main(line.split()) == EXIT_BAD_INPUT
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def test_a_failed_command_keeps_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "model.safetensors", wide_network(depth=1, classes=3))
    assert main(["predict", "model.safetensors", "sample:0", "--csv", "rows.csv"]) == EXIT_OK
    written = (tmp_path / "rows.csv").read_text()
    assert main(["predict", "model.safetensors", "none.png", "--csv", "rows.csv"]) == EXIT_BAD_INPUT
    assert (tmp_path / "rows.csv").read_text() == written
