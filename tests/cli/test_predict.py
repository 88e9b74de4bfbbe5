"""`lapis predict`: names, JSON, refusals, and no torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from lapis import pack
from lapis.cli import main
from lapis.cli.predict import command
from lapis.errors import EXIT_BAD_INPUT
from lapis.runtime import Session
from tests.networks import wide_network


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    pack.save(path, wide_network(depth=1))
    return path


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "image.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 30, 3), dtype=np.uint8)).save(path)
    return path


def test_the_json_holds_what_the_session_predicts(model: Path, image: Path) -> None:
    want = Session(model).predict(image, k=3)[0]
    for extra in ([], ["--numpy"], ["--threads", "2"]):
        result = CliRunner().invoke(command, [str(model), str(image), "--top", "3", "--json", *extra])
        assert result.exit_code == 0, result.output
        answer = json.loads(result.output)["answers"][0]
        assert answer["image"] == str(image)
        assert [(one["index"], one["logit"]) for one in answer["classes"]] == [(one.index, one.logit) for one in want]


def test_people_get_names_and_shares(model: Path, image: Path) -> None:
    result = CliRunner().invoke(command, [str(model), str(image), str(image)])
    assert result.exit_code == 0, result.output
    assert result.output.count(str(image)) == 2
    assert result.output.count(" %") == 10
    assert "ms per image" in result.output


def test_what_does_not_exist_is_one_line_of_error(
    model: Path, image: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in ([str(model), str(tmp_path / "none.png")], [str(tmp_path / "none.safetensors"), str(image)]):
        assert main(["predict", *words]) == EXIT_BAD_INPUT
        assert capsys.readouterr().err.count("\n") == 1


def test_a_prediction_never_imports_torch(model: Path, image: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        f"from lapis.cli import main; sys.exit(main(['predict', {str(model)!r}, {str(image)!r}]))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
