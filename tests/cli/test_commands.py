"""The commands as a person uses them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import lapis
from lapis.cli import main
from lapis.cli.app import GROUPS, VERBS
from lapis.errors import EXIT_BAD_INPUT, EXIT_CLOSED_PIPE, EXIT_OK

SCREEN = 30
TITLES = ("Use a network", "Train one", "Prove it")


@pytest.mark.parametrize("verb", [verb for title in TITLES for verb in GROUPS[title] if verb in VERBS])
def test_every_help_fits_a_screen_and_ends_with_an_example(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main([verb, "--help"]) == EXIT_OK
    text = capsys.readouterr().out
    assert len(text.splitlines()) <= SCREEN
    last = text.split("Example:")[1].strip().splitlines()
    assert all(line.strip().startswith(f"lapis {verb}") for line in last)


def test_there_are_at_most_14_commands_in_three_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert len([verb for title in TITLES for verb in GROUPS[title]]) <= 14
    assert main(["--help"]) == EXIT_OK
    text = capsys.readouterr().out
    assert [line[:-1] for line in text.splitlines() if line[:-1] in GROUPS][:3] == list(TITLES)


def test_the_verbs_are_listed_without_loading_them() -> None:
    code = "import sys; from lapis.cli import main; main(['--help']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(verb in done.stdout for verb in VERBS)


def test_the_package_imports_without_torch() -> None:
    code = "import sys; sys.modules['torch'] = None; import lapis; print(lapis.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == lapis.__version__


@pytest.mark.parametrize(("words", "meant"), [(["predcit"], "predict"), (["trian"], "train")])
def test_a_misspelled_command_is_bad_input_and_the_nearest_is_named(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == EXIT_BAD_INPUT
    error = capsys.readouterr().err
    assert words[-1] in error
    assert f"did you mean {meant!r}?" in error


def test_an_unknown_option_before_a_command_is_still_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--debgu"]) == EXIT_BAD_INPUT
    assert "--debug" in capsys.readouterr().err


# Commands that print by click, by rich, by print, as help and as an error.
@pytest.mark.parametrize(
    "words",
    [
        "info",
        "energy lapis_large --activity all=0.3",
        "predict lapis_tiny.cifar10 sample:0",
        "--help",
        "train --help",
        "predcit 2>&1",
        "--version",
    ],
)
@pytest.mark.parametrize("reader", ["true", "head -n 1"])
def test_a_reader_that_leaves_early_ends_the_command_quietly(words: str, reader: str) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed: it tells the exit code of each command in a pipe")
    # `true` has ended long before Python writes; `head` may read all of a short output.
    code = f"{sys.executable} -m lapis.cli {words} | {reader} >/dev/null; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run([bash, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    codes = {EXIT_CLOSED_PIPE} if reader == "true" else {EXIT_CLOSED_PIPE, EXIT_OK, EXIT_BAD_INPUT}
    assert int(done.stdout) in codes


# A service or a script may start a command with a stream closed, or with one that takes nothing.
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ("predict lapis_tiny.cifar10 sample:0 >&-", EXIT_OK, ""),
        ("predict lapis_tiny.cifar10 sample:0 >&- 2>&-", EXIT_OK, ""),
        ("predict lapis_tiny.cifar10 - <&-", EXIT_BAD_INPUT, "standard input is empty"),
        ("info none.safetensors >&- 2>&-", EXIT_BAD_INPUT, ""),
        ("info none.safetensors 2>/dev/full", EXIT_BAD_INPUT, ""),
        ("--version >/dev/full", EXIT_BAD_INPUT, "No space left"),
    ],
)
def test_a_missing_stream_changes_no_exit_code_and_is_no_traceback(words: str, code: int, said: str) -> None:
    bash = shutil.which("bash")
    if bash is None or not Path("/dev/full").exists():
        pytest.skip("bash or /dev/full is not there")
    done = subprocess.run([bash, "-c", f"{sys.executable} -m lapis.cli {words}"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == bool(said)
