"""The page of commands, from the commands themselves; `make docs` builds it into the site.

Summaries, arguments, options, defaults and examples are read from click, so the page cannot differ from `--help`.
What click does not know (kinds of MODEL, exit codes, variables, completion) is the text of HEAD.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import NamedTuple

import click

from lapis.cli.app import VERBS, app

HEAD = """\
# Commands

Commands to use, train and prove networks. `lapis COMMAND --help` prints the same as this page.

| command | what it does |
|---|---|
{commands}

A MODEL is one of these. A command that cannot use a kind says which kind it is and what to do.

| MODEL | example |
|---|---|
| the name of a packaged model | `lapis_tiny.cifar10` |
| a packed file | `model.safetensors` |
| a run's folder, or a checkpoint in it | `runs/smoke`, `runs/smoke/last.safetensors` |
| weights with timm's names: a file, or a timm model | `deit_tiny.safetensors`, `deit_tiny_patch16_224` |

`--json` prints one object on standard output. Progress and errors go to standard error. `lapis --debug COMMAND ...`
shows the traceback of an error.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the command ran, and a check failed |
| 2 | bad input: arguments, files or values; nothing is left behind |
| 3 | some of the images could not be read; the others were answered |
| 130 | interrupted |
| 141 | the reader of the output has ended, as `head` does; nothing is printed about it |

| variable | meaning |
|---|---|
| `LAPIS_DATA` | the folder of `--data` |
| `LAPIS_ISA` | the instruction set to use; `none` turns the native library off |
| `LAPIS_GPU` | `eager` turns the GPU kernels off; `words` and `thermometer` force one way to find distances |
| `LAPIS_KERNELS` | the path of another build of the library |

The tab key completes commands, options, files, packaged models, recipes, presets and cost tables, once the
start file of the shell has this line:

```sh
eval "$(_LAPIS_COMPLETE=bash_source lapis)"   # bash 4.4 or newer: in ~/.bashrc
eval "$(_LAPIS_COMPLETE=zsh_source lapis)"    # zsh: in ~/.zshrc, after compinit
_LAPIS_COMPLETE=fish_source lapis | source    # fish: in ~/.config/fish/config.fish
```
"""


class Help(NamedTuple):
    """A command's docstring: its text in paragraphs, and the command lines of its example."""

    paragraphs: list[str]
    example: list[str]


def page() -> str:
    """The whole page."""
    root = click.Context(app, info_name="lapis")
    commands = [(verb, app.get_command(root, verb)) for verb in app.list_commands(root)]
    rows = [f"| [`lapis {verb}`](#lapis-{verb}) | {_cell(VERBS[verb])} |" for verb, _ in commands]
    sections = [text for verb, command in commands if command is not None for text in _sections(root, verb, command)]
    return "\n".join([HEAD.format(commands="\n".join(rows)), *sections])


def _sections(parent: click.Context, name: str, command: click.Command, level: int = 2) -> Iterator[str]:
    """A command's section, then those of its subcommands."""
    context = click.Context(command, info_name=name, parent=parent)
    text = _read_help(command)
    lines = [f"{'#' * level} {context.command_path}", ""]
    for paragraph in text.paragraphs:
        lines += [paragraph, ""]
    lines += ["```", f"{context.command_path} {_usage(command)}", "```", ""]
    rows = [_option_row(one) for one in command.params if isinstance(one, click.Option)]
    if rows:
        lines += ["| option | what it does | default |", "|---|---|---|", *rows, ""]
    lines += ["Example:", "", "```sh", *text.example, "```", ""]
    yield "\n".join(lines)
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            assert inner is not None, f"{context.command_path} lists {each} and does not have it"
            yield from _sections(context, each, inner, level + 1)


def _read_help(command: click.Command) -> Help:
    """In a docstring \\b begins a paragraph that click leaves as it is; here it holds the example."""
    paragraphs, example = [], []
    for block in inspect.cleandoc(f"{command.help or ''}\n\n{command.epilog or ''}".strip()).split("\n\n"):
        if block.startswith("\b"):
            example += [line.strip() for line in block.splitlines()[2:]]
        elif block.strip():
            paragraphs.append(" ".join(block.split()))
    return Help(paragraphs, example)


def _usage(command: click.Command) -> str:
    """What follows the command's name, such as `[OPTIONS] MODEL IMAGES...`."""
    words = ["[OPTIONS]"] if command.params else []
    for one in command.params:
        if isinstance(one, click.Argument):
            word = str(one.name).upper() + ("..." if one.nargs == -1 else "")
            words.append(one.metavar or (word if one.required else f"[{word}]"))
    if isinstance(command, click.Group):
        words.append("COMMAND [ARGS]...")
    return " ".join(words)


def _option_row(option: click.Option) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    value = "" if option.is_flag else f" `{_value_name(option)}`"
    default = f"`{_default_text(option)}`" if option.show_default else ""
    # The brackets of `[LAPIS_DATA]` would be a link.
    words = [_cell(option.help or "").replace("[", "\\["), _allowed_text(option.type)]
    return f"| {names}{_cell(value)} | {' '.join(filter(None, words))} | {default} |"


def _value_name(option: click.Option) -> str:
    if option.metavar:
        return option.metavar
    kinds: list[tuple[type, str]] = [
        (click.Choice, "NAME"),
        (click.IntRange, "INTEGER"),
        (type(click.INT), "INTEGER"),
        (type(click.FLOAT), "NUMBER"),
        (click.Path, "PATH"),
    ]
    return next((name for kind, name in kinds if isinstance(option.type, kind)), "TEXT")


def _default_text(option: click.Option) -> str:
    if isinstance(option.show_default, str):
        return option.show_default
    if option.secondary_opts:
        return (option.opts if option.default else option.secondary_opts)[0]
    return " ".join(map(str, option.default)) if isinstance(option.default, tuple) else str(option.default)


def _allowed_text(kind: object) -> str:
    """The values that a type allows, where it is a choice or a range."""
    if isinstance(kind, click.Choice):
        return f"One of {', '.join(kind.choices)}."
    if not isinstance(kind, click.IntRange):
        return ""
    return f"At least {kind.min}." if kind.max is None else f"{kind.min} to {kind.max}."


def _cell(text: str) -> str:
    """Text in a cell of a table."""
    return text.replace("|", "\\|")
