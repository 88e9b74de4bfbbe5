"""The code blocks of the documentation run as they stand, and print what the pages show."""

from __future__ import annotations

import doctest
import importlib.util
import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from lapis import relations
from lapis.cli import main
from tests.docs import given
from tests.docs.blocks import NUMBERS_VARY, Block, PageError, read_page

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/index.md", "docs/tutorial.md", "docs/steps.md", "docs/reproduce.md", "docs/energy.md"]
PAGES += ["docs/engine.md"]
PAGES += sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "howto").glob("*.md"))
NUMBER = re.compile(r"\d[\d,]*(\.\d+)?")
SHELL_SIGNS = set("|&;<>$`()")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_and_prints_what_it_shows(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    # A page may register a relation; the tests after it must not see it.
    monkeypatch.setattr(relations, "_RULES", dict(relations._RULES))
    if importlib.util.find_spec("torch") is not None:
        modules = importlib.import_module("lapis.nn.relations")
        monkeypatch.setattr(modules, "_CLASSES", dict(modules._CLASSES))
    run_page(ROOT / page, page)


def run_page(path: Path, name: str) -> None:
    """Run the blocks of a page in order, in the current folder; names of Python blocks stay from block to block."""
    page = read_page(path, name)
    variables: dict[str, Any] = {"__name__": name}
    ready, printed = False, ""
    for block in page.blocks:
        if block.action == "run":
            for package in block.needs:
                if importlib.util.find_spec(package) is None:
                    pytest.skip(f"{block.place} needs {package}: pip install 'lapis-snn[train]'")
            if not ready:
                for one in page.given:
                    given.make(one, Path.cwd())
                ready = True
            printed = run_python(block, variables) if block.language == "python" else run_shell(block)
        elif block.action == "output":
            compare(block, printed)


def run_python(block: Block, variables: dict[str, Any]) -> str:
    """What the block printed; its errors show the page and the line in the block."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(block.text, block.place, "exec", dont_inherit=True), variables)
    return printed.getvalue()


def run_shell(block: Block) -> str:
    """What the commands printed to standard output; each must succeed.

    A plain `lapis` command runs in this process: it is the same function, and torch is imported once instead of once
    per command. Everything else goes to bash.
    """
    # A backslash at the end of a line continues the command.
    commands = re.sub(r"\\\n\s*", "", block.text)
    return "".join(run_command(block, line) for line in commands.splitlines() if line.split("#")[0].strip())


def run_command(block: Block, line: str) -> str:
    words = shlex.split(line, comments=True)
    if words[0] != "lapis" or SHELL_SIGNS & set(line.split("#")[0]):
        assert words[0] != "lapis" or words[1] not in block.added, f"{block.place}: nothing can be added to `{line}`"
        return run_bash(block, line)
    printed, complaints = io.StringIO(), io.StringIO()
    arguments = [*words[1:], *block.added.get(words[1], [])]
    with redirect_stdout(printed), redirect_stderr(complaints):
        code = main(arguments)
    assert code == 0, f"{block.place}: `{line}` exits with {code}:\n{complaints.getvalue()}"
    return printed.getvalue()


def run_bash(block: Block, text: str) -> str:
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", text], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block.place}: exits with {done.returncode}:\n{text}\n{done.stderr}"
    return done.stdout


def compare(block: Block, printed: str) -> None:
    expected, seen = block.text, printed
    if block.detail == NUMBERS_VARY:
        expected, seen = (NUMBER.sub("0", text) for text in (expected, seen))
    checker, options = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not checker.check_output(expected, seen, options):
        raise AssertionError(f"{block.place} shows\n{block.text}\nand the code before it prints\n{printed}")


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "page.md"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```python\n1\n```\n", "say above the block"),
        ("<!-- order -->\n```\n1\n```\n", "say above the block"),
        ("<!-- not run -->\n```sh\nls\n```\n", "needs a reason"),
        ("<!-- run -->\n```\nls\n```\n", "python or sh"),
        ("<!-- run: quickly -->\n```sh\nls\n```\n", "is no condition"),
        ("<!-- run: lapis train --quiet -->\n```sh\nls\n```\n", "does not call"),
        ("<!-- output -->\n```\n1\n```\n", "follows no block"),
        ("<!-- run -->\n```sh\nls\n```\n<!-- output: roughly -->\n```\n1\n```\n", "is no kind of output"),
    ],
)
def test_a_block_without_a_valid_comment_is_named(text: str, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(PageError, match=rf"page:\d+: .*{complaint}"):
        read_page(write(tmp_path, text), "page")


@pytest.mark.parametrize(
    ("shown", "kind", "right"),
    [
        ("1 of 20", "", True),
        ("1 of 21", "", False),
        ("1 of ...", "", True),
        ("7 of 1,234.5", ": numbers vary", True),
        ("7 in 20", ": numbers vary", False),
    ],
)
def test_output_that_differs_fails(
    shown: str, kind: str, right: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = f"<!-- run -->\n```python\nprint('1  of 20')\n```\n<!-- output{kind} -->\n```\n{shown}\n```\n"
    if right:
        run_page(write(tmp_path, text), "page")
    else:
        with pytest.raises(AssertionError, match="page:6 shows"):
            run_page(write(tmp_path, text), "page")


def test_a_command_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in ("lapis unpack nowhere.safetensors", "false | true", "ls nowhere"):
        with pytest.raises(AssertionError, match=r"page:2: .*exits with"):
            run_page(write(tmp_path, f"<!-- run -->\n```sh\n{command}\n```\n"), "page")


def test_arguments_are_added_to_the_command_they_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "<!-- run: lapis energy --json -->\n```sh\nlapis info\nlapis energy lapis_tiny --activity all=0.3\n```\n"
    block = read_page(write(tmp_path, text), "page").blocks[0]
    assert block.added == {"energy": ["--json"]}
    assert run_shell(block).splitlines()[-1].startswith("{")
