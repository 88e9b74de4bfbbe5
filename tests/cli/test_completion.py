"""Completion in the shell, asked as click's scripts for bash, zsh and fish ask."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from lapis import assets
from lapis.cli.app import COMPLETE, NAME, VERBS, app
from lapis.cli.completion import recipe_names
from lapis.config import PRESETS
from lapis.energy import tables
from lapis.train import recipes

FILE = "file"


def _offered(*words: str) -> list[str]:
    """What the tab key offers after these words, of which the last is unfinished; files as one item."""
    items = ShellComplete(app, {}, NAME, COMPLETE).get_completions(list(words[:-1]), words[-1])
    return [item.value if item.type == "plain" else item.type for item in items]


def test_commands_are_completed() -> None:
    assert _offered("") == list(VERBS)
    assert _offered("pre") == ["predict"]


@pytest.mark.parametrize(
    "before",
    [
        ["predict"], ["evaluate"], ["explain"], ["simulate"], ["verify"], ["info"], ["pack"], ["energy"],
        ["demo", "--model"], ["train", "--start"], ["train", "--teacher"],
        ["finetune", "pictures", "--start"], ["finetune", "pictures", "--teacher"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_model_is_a_packaged_name_or_a_file(before: list[str]) -> None:
    offered = _offered(*before, "lapis_tiny.c")
    # The file must come first: bash forgets what comes before it.
    assert offered == [FILE, *(name for name in assets.names() if name.startswith("lapis_tiny.c"))]
    assert len(offered) > 1
    assert _offered(*before, "runs/") == [FILE]


def test_images_and_results_are_files() -> None:
    assert _offered("predict", "model", "photo.png", "p") == [FILE]
    assert _offered("explain", "model", "p") == [FILE]
    assert _offered("evaluate", "model", "--data", "d") == [FILE]


def test_recipes_presets_and_tables_are_completed() -> None:
    assert _offered("train", "") == recipes.names()
    assert _offered("train", "smo") == ["smoke"]
    assert set(PRESETS) <= set(_offered("energy", ""))
    assert _offered("energy", "m", "--costs", "45") == [FILE, *(name for name in tables() if name.startswith("45"))]


def test_the_names_that_need_no_torch_are_those_of_training() -> None:
    assert recipe_names() == recipes.names()


@pytest.mark.parametrize("words", ["lapis train c", "lapis predict l"])
def test_completing_never_loads_torch(words: str) -> None:
    code = "import sys; sys.modules['torch'] = None\nfrom lapis.cli import main; sys.exit(main())"
    asked = {COMPLETE: "bash_complete", "COMP_WORDS": words, "COMP_CWORD": "2"}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert done.stderr == ""
    assert "plain," in done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_is_printed(shell: str) -> None:
    done = _ask(shell, f"{shell}_source")
    assert f"{COMPLETE}={shell}_complete" in done


def test_bash_completes_a_model(tmp_path: Path) -> None:
    """The script in a real bash: the words before the cursor in, the reply out."""
    shell = shutil.which("bash")
    if shell is None:
        pytest.skip("bash is not installed: it runs the completion script")
    (tmp_path / "lapis").write_text(f'#!/bin/sh\nexec {sys.executable} -m lapis.cli "$@"\n')
    (tmp_path / "lapis").chmod(0o755)
    (tmp_path / "script").write_text(_ask("bash", "bash_source"))
    # compopt works only while bash completes a line by itself.
    code = (
        f"compopt() {{ :; }}; source {tmp_path}/script; COMP_WORDS=(lapis predict lapis_t) COMP_CWORD=2; "
        "_lapis_completion lapis; echo ${COMPREPLY[@]}"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run([shell, "-c", code], env={**os.environ, "PATH": path}, capture_output=True, text=True)
    assert done.stdout.split() == [name for name in assets.names() if name.startswith("lapis_t")], done.stderr


def _ask(shell: str, instruction: str) -> str:
    if shutil.which(shell) is None and shell == "bash":
        pytest.skip("bash is not installed: click asks it for its version")
    done = subprocess.run(
        [sys.executable, "-m", "lapis.cli"],
        env={**os.environ, COMPLETE: instruction},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout
