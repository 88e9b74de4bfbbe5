"""The code blocks of the documentation run as they stand, and print what the pages show."""

from __future__ import annotations

import doctest
import importlib.util
import io
import os
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
from tests.docs.blocks import Block, PageError, Rules, block_with, read_blocks
from tests.docs.pages import PAGES

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"\d[\d,]*(\.\d+)?")
SHELL_SIGNS = set("|&;<>$`()*")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_and_prints_what_it_shows(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    monkeypatch.setenv("LAPIS", str(ROOT))
    # A page may register a relation; the tests after it must not see it.
    monkeypatch.setattr(relations, "_RULES", dict(relations._RULES))
    if importlib.util.find_spec("torch") is not None:
        modules = importlib.import_module("lapis.nn.relations")
        monkeypatch.setattr(modules, "_CLASSES", dict(modules._CLASSES))
    for package in PAGES[page].needs:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{page} needs {package}")
    run_page(ROOT / page, page, PAGES[page])


def run_page(path: Path, name: str, rules: Rules) -> None:
    """Run the blocks of a page in order, in the current folder; names of Python blocks stay from block to block."""
    blocks = read_blocks(path, name)
    missing = [line for line, package in rules.only_with.items() if importlib.util.find_spec(package) is None]
    skipped = [block_with(blocks, line, name) for line in (*rules.not_run, *missing)]
    vary = [block_with(blocks, line, name) for line in rules.numbers_vary]
    for one in rules.given:
        given.make(one, Path.cwd())
    variables: dict[str, Any] = {"__name__": name}
    printed: str | None = None
    exported: list[str] = []
    for block in blocks:
        if block.language in ("python", "sh") and block not in skipped:
            printed = run_python(block, variables) if block.language == "python" else run_shell(block, rules, exported)
        elif block.language == "text" and printed is not None:
            compare(block, printed, block in vary)
            printed = None
        else:
            printed = None


def run_python(block: Block, variables: dict[str, Any]) -> str:
    """What the block printed; its errors show the page and the line in the block."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(block.text, block.place, "exec", dont_inherit=True), variables)
    return printed.getvalue()


def run_shell(block: Block, rules: Rules, exported: list[str]) -> str:
    """What the commands printed to standard output; each must succeed. Exports stay for the rest of the page.

    A plain `lapis` command runs in this process: it is the same function, and torch is imported once instead of once
    per command. Everything else goes to bash.
    """
    printed = ""
    # A backslash at the end of a line continues the command.
    for line in re.sub(r"\\\n\s*", "", block.text).splitlines():
        if line.startswith("export "):
            exported.append(line)
        elif line.split("#")[0].strip():
            printed += run_command(block, line, rules, exported)
    return printed


def run_command(block: Block, line: str, rules: Rules, exported: list[str]) -> str:
    words = shlex.split(line, comments=True)
    if words[0] != "lapis" or SHELL_SIGNS & set(line.split("#")[0].replace("'", "")):
        script = "\n".join([*exported, line])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            capture_output=True,
            text=True,
            check=False,
            env=os.environ.copy(),
        )
        assert done.returncode == 0, f"{block.place}: exits with {done.returncode}:\n{line}\n{done.stderr}"
        return done.stdout
    printed, complaints = io.StringIO(), io.StringIO()
    arguments = [*words[1:], *shlex.split(rules.add.get(words[1], ""))]
    with redirect_stdout(printed), redirect_stderr(complaints):
        code = main(arguments)
    assert code == 0, f"{block.place}: `{line}` exits with {code}:\n{complaints.getvalue()}"
    return printed.getvalue()


def compare(block: Block, printed: str, numbers_vary: bool) -> None:
    expected, seen = block.text, printed
    if numbers_vary:
        expected, seen = (NUMBER.sub("0", text) for text in (expected, seen))
    checker, options = doctest.OutputChecker(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    if not checker.check_output(expected, seen, options):
        raise AssertionError(f"{block.place} shows\n{block.text}\nand the code before it prints\n{printed}")


@pytest.mark.parametrize(
    ("shown", "vary", "right"),
    [("1 of 20", False, True), ("1 of 21", False, False), ("1 of ...", False, True), ("7 of 1,234.5", True, True)],
)
def test_output_that_differs_fails(shown: str, vary: bool, right: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"```python\nprint('1  of 20')\n```\n```text\n{shown}\n```\n")
    rules = Rules(numbers_vary=(shown,) if vary else ())
    if right:
        run_page(page, "page", rules)
    else:
        with pytest.raises(AssertionError, match="page:4 shows"):
            run_page(page, "page", rules)


def test_a_command_that_fails_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    for command in ("lapis info nowhere.safetensors", "false | true", "ls nowhere"):
        page.write_text(f"```sh\n{command}\n```\n")
        with pytest.raises(AssertionError, match=r"page:1: .*exits with"):
            run_page(page, "page", Rules())


def test_an_exception_that_fits_no_block_is_named(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\ntrue\n```\n")
    with pytest.raises(PageError, match="0 blocks have the line 'false'"):
        run_page(page, "page", Rules(not_run={"false": "fails"}))
