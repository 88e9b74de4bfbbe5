"""docs/commands.md is what the commands say of themselves."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from lapis import errors

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "commands.md"


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("commands_page", ROOT / "tools" / "commands_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_commands_say_now(generator: ModuleType) -> None:
    assert PAGE.read_text(encoding="utf-8") == generator.page(), "out of date; run: python tools/commands_page.py"


def test_every_command_has_an_example_that_calls_it(generator: ModuleType) -> None:
    for section in re.split(r"^##+ ", generator.page(), flags=re.MULTILINE)[1:]:
        command = section.partition("\n")[0]
        example = section.partition("```sh\n")[2].partition("```")[0]
        assert all(line.startswith(command) for line in example.splitlines()), section
        assert example, section


def test_every_exit_code_and_variable_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    codes = {value for name, value in vars(errors).items() if name.startswith("EXIT_")}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", text, flags=re.MULTILINE)} == codes
    source = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "lapis").rglob("*.py"))
    read = set(re.findall(r"""(?:environ\.get\(|environ\[|envvar=|ENV\w* = )["'](LAPIS_\w+)""", source))
    assert read
    assert {name for name in read if f"| `{name}` |" not in text} == set()
