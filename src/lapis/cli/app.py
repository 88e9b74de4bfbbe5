"""The table of commands, and how their errors become one line and an exit code."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from contextlib import suppress
from importlib import import_module
from inspect import cleandoc

import click
from click.shell_completion import shell_complete

import lapis
from lapis._util.terminal import echo
from lapis.config import nearest
from lapis.errors import EXIT_BAD_INPUT, EXIT_CLOSED_PIPE, EXIT_INTERRUPTED, EXIT_OK, LapisError

NAME = "lapis"
# Letters of an error that are shown.
LONGEST_ERROR = 2000
# With this variable a shell asks for completions, and for the script that switches them on.
COMPLETE = "_LAPIS_COMPLETE"
HELP_WIDTH = 100

# The module lapis.cli.<verb> holds the click command `command`.
GROUPS = {
    "Use a network": {
        "predict": "Classify images.",
        "explain": "Write a page that shows how a network classified one image.",
        "info": "Show what a network is and can answer; check this machine.",
        "demo": "Try Lapis on real images, and check it.",
    },
    "Train one": {
        "finetune": "Train a network for a folder of your own images, pack it and report.",
        "distill": "Turn a trained vision transformer into a spiking network.",
        "train": "Run a training recipe.",
        "pack": "Write a network into one small file.",
        "export": "Write a network as an ONNX file.",
        "publish": "Write the folder of a hub repository, with a model card.",
    },
    "Prove it": {
        "evaluate": "Measure top-1 and top-5 accuracy on a folder of images.",
        "verify": "Compare the executors of a network, code by code.",
        "energy": "Estimate the energy per image, operator by operator.",
        "simulate": "Run a network spike by spike and count.",
    },
}
VERBS = {verb: text for verbs in GROUPS.values() for verb, text in verbs.items()}


class Verbs(click.Group):
    """A group whose commands are imported one at a time, and whose error for an unknown one suggests another."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"lapis.cli.{cmd_name}").command
        command.name = cmd_name
        # The help ends with the example, below the options.
        text, mark, example = cleandoc(command.help or "").partition("\b\nExample:")
        if mark:
            command.help, command.epilog = text, mark + example
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        word = args[0]
        if word not in VERBS and not word.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"there is no command {word!r}; {nearest(word, VERBS)}commands: {', '.join(VERBS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, verbs in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl(list(verbs.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH})
@click.version_option(lapis.__version__, prog_name="lapis")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def app(debug: bool) -> None:
    """Laplacian spiking attention: train, convert exactly to first spikes, run in integers.

    Exit codes: 0 done, 1 a check failed, 2 bad input, 3 some images could not be read, 130 interrupted, 141 the reader
    of the output is gone.

    \b
    Example:
      lapis predict photo.jpg
    """


def run_command_line(words: list[str]) -> int:
    """Run the command line and return its exit code."""
    # A program started without a standard stream, as by `lapis ... >&-`, has None for it; it gets an empty one.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it stays open
    for stream in (sys.stdout, sys.stderr):
        # A terminal that is not of UTF-8 cannot show every name; it gets the escapes.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Pillow warns of a large image; what is too large for us is refused by `lapis.preprocess`.
    warnings.filterwarnings("ignore", module="PIL")
    asked = os.environ.get(COMPLETE)
    if asked:
        return shell_complete(app, {}, NAME, COMPLETE, asked)
    try:
        code = _invoke(words)
        sys.stdout.flush()
        return code
    except OSError as error:  # a closed pipe, or a full disk below standard error itself
        # What is still buffered goes nowhere: Python would report the closed pipe once more when it ends.
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
        return EXIT_CLOSED_PIPE if isinstance(error, BrokenPipeError) else EXIT_BAD_INPUT


def _invoke(words: list[str]) -> int:
    try:
        # app.main would do the same, but ends the process with exit code 1 where a pipe is closed.
        with app.make_context(NAME, list(words)) as context:
            result = app.invoke(context)
    except click.exceptions.Exit as stop:
        return int(stop.exit_code)
    except (KeyboardInterrupt, click.exceptions.Abort):
        echo("lapis: interrupted", error=True)
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        usage = io.StringIO()
        error.show(usage)
        echo(*usage.getvalue().rstrip("\n").split("\n"), error=True)
        return EXIT_BAD_INPUT
    except BrokenPipeError:
        raise
    except (LapisError, OSError, MemoryError) as error:
        # A place has several lines; a message is one, which it could forge.
        for entry in traceback.format_exception(error) if "--debug" in words else ():
            echo(*(entry.rstrip("\n").split("\n") if entry.startswith("  File ") else [entry.strip("\n")]), error=True)
        echo(f"lapis: error: {_short(error)}", error=True)
        return EXIT_BAD_INPUT
    return result if isinstance(result, int) else EXIT_OK


def _short(error: BaseException) -> str:
    """The message of an error, which may quote a name of megabytes from a file."""
    if isinstance(error, MemoryError):
        reason = f" ({error})" if str(error) else ""
        return f"there is not enough memory for this{reason}; use a smaller model, image or batch"
    text = str(error)
    return text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]}..."
