"""A command that fails leaves nothing behind: no file, no folder, not even an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest

from lapis import native
from lapis.cli import main
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK
from lapis.pack import save
from tests.networks import wide_network

# Every command that writes, made to fail as late as bad input can. NEW is a folder that does not exist yet, MODEL a
# packed network, FILE something that is no folder.
FAILURES = [
    "train smoke --out NEW/run --start none.safetensors",
    "train smoke --out NEW/run --data NEW",
    "train smoke --out NEW/run --set optim.batch=1000",
    "train smoke --out NEW/run --resume",
    "train smoke --out NEW/run --teacher none.safetensors",
    "train smoke --out FILE/run",
    "train cifar10_tiny --data none",
    "ablate relation --recipe smoke --data none",
    "ablate relation --recipe smoke --start none.safetensors --out NEW",
    "demo --model none.safetensors",
    "demo --model MODEL --out NEW/demo",
    "demo --out FILE/demo",
    "pack none.safetensors -o NEW/packed.safetensors",
    "pack MODEL -o NEW/packed.safetensors",
    "unpack FILE -o NEW/arrays.npz",
    "unpack MODEL -o FILE/arrays.npz",
    "predict MODEL none.png --csv NEW/answers.csv",
    "predict MODEL slice:0 --csv FILE/answers.csv",
    "explain MODEL none.png -o NEW/page.html",
    "explain MODEL slice:0 -o FILE/page.html",
    "convert MODEL -n 1 --picture NEW/neuron.png --neuron 99 0 0",
    "convert MODEL -n 1 --picture FILE/neuron.png",
    "energy lapis_tiny --activity all=0.3 --csv NEW/rows.csv --chart NEW/chart.pdf",
    "energy lapis_tiny --activity all=0.3 --csv FILE/rows.csv --chart NEW/chart.png",
    "energy lapis_tiny --activity all=2 --csv NEW/rows.csv",
    "energy --paper --csv FILE/rows.csv",
    "evaluate MODEL --data none",
    "bench engine --engine none --out NEW",
    "bench energy none --out NEW/deep",
    "bench kernels --isa none --out NEW",
    "bench growth --side 33 --out NEW",
    "bench soak --out FILE/deep",
]


@pytest.mark.parametrize("line", FAILURES)
def test_nothing_is_left_of_a_command_that_failed(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "growth" in line and not native.available():
        pytest.skip(f"no native kernels: {native.describe()}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LAPIS_DATA", raising=False)
    # Three classes: the demo, whose images have ten, refuses it only after it was opened.
    save(tmp_path / "model.safetensors", wide_network(depth=1, classes=3))
    (tmp_path / "file").write_text("not a folder")
    before = sorted(tmp_path.rglob("*"))
    words = {"NEW": str(tmp_path / "new"), "MODEL": "model.safetensors", "FILE": "file"}
    for name, value in words.items():
        line = line.replace(name, value)
    assert main(line.split()) == EXIT_BAD_INPUT
    captured = capsys.readouterr()
    assert captured.err != ""
    assert sorted(tmp_path.rglob("*")) == before


def test_a_failed_command_keeps_the_file_that_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["energy", "lapis_tiny", "--activity", "all=0.3", "--csv", "rows.csv"]
    assert main(words) == EXIT_OK
    written = (tmp_path / "rows.csv").read_text()
    assert main([*words, "--set", "depth=3", "--chart", "chart.pdf"]) == EXIT_BAD_INPUT
    assert (tmp_path / "rows.csv").read_text() == written
