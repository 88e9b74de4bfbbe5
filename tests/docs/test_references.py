"""Commands, options, files and links that the documents name exist."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from lapis.cli.app import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
# Pages that `make docs` writes; they are not in the repository.
BUILT = {"commands.md", "api.md"}
CODE = re.compile(r"^```\w*\n(.*?)^```$|(`[^`]+`)", re.MULTILINE | re.DOTALL)
FOLDERS = ("src", "tests", "csrc", "tools", "docs", "examples", "benchmarks", "hardware", "zoo", "research", "models")


def names(pages: list[Path]) -> list[str]:
    return [str(page.relative_to(ROOT)) for page in pages]


def commands_in(text: str) -> list[str]:
    """Every `lapis VERB ...` in code, in a block or in a line; one that is broken over lines is put together."""
    found = []
    for block, inline in CODE.findall(text):
        lines = re.sub(r"\\\n\s*", "", block).splitlines() if block else [inline.strip("`").replace("\n", " ")]
        found += [match[1] for line in lines for match in [re.match(r"(?:\w+=\S+ )*(lapis [a-z].*)", line)] if match]
    return found


def unknown_option(line: str) -> str | None:
    """The first word of a command line that no command or option has."""
    command: click.Command = app
    # Words behind a command may explain it, with an apostrophe; quotes do not matter to options.
    words = line.partition(" #")[0].split()[1:]
    while isinstance(command, click.Group):
        if not words or words[0].isupper():
            return None
        inner = command.get_command(click.Context(command), words[0])
        if inner is None:
            return words[0]
        command, words = inner, words[1:]
    options = {"-h", "--help"} | {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
    return next((word for word in words if re.match(r"--?[a-z]", word) and word.split("=")[0] not in options), None)


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_command_and_option_exists(page: Path) -> None:
    wrong = {line: word for line in commands_in(page.read_text(encoding="utf-8")) if (word := unknown_option(line))}
    assert wrong == {}


def test_a_command_or_option_that_does_not_exist_is_found() -> None:
    text = "`lapis pack --affinity-bits`, `LAPIS_ISA=avx2 lapis pak x`,\n`lapis evaluate x --data\nDIR --sizes`\n"
    text += "```sh\nlapis train smoke \\\n  --sett a=b  # --other\n```\n"
    assert [unknown_option(line) for line in commands_in(text)] == [None, "pak", "--sizes", "--sett"]


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_file_that_is_named_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    paths = re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./-]+)`", text)
    # A word in capitals (NAME, SET) is the reader's to fill in.
    named = [path for path in paths if not re.search(r"NAME|SET", path)]
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=names(PAGES))
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    local = [target.partition("#")[0] for target in targets if "://" not in target]
    named = [target for target in local if target and Path(target).name not in BUILT]
    assert [target for target in named if not (page.parent / target).exists()] == []
