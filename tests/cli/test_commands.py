"""The commands as a person meets them."""

from __future__ import annotations

import subprocess
import sys

import pytest

import lapis
from lapis.cli import VERBS, main
from lapis.errors import EXIT_BAD_INPUT, EXIT_OK


@pytest.mark.parametrize("verb", VERBS)
def test_every_help_ends_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == EXIT_OK
    text = capsys.readouterr().out
    assert "Example" in text
    assert f"lapis {verb}" in text


def test_the_verbs_are_listed_without_loading_them() -> None:
    code = "import sys; from lapis.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(verb in done.stdout for verb in VERBS)


def test_the_package_imports_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import lapis; print(lapis.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == lapis.__version__


def test_an_unknown_command_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trian"]) == EXIT_BAD_INPUT
    assert "trian" in capsys.readouterr().err
