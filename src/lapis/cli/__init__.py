"""The `lapis` command. Each subcommand is imported only when it is called, so that a prediction never loads torch."""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from contextlib import suppress
from importlib import import_module

import click
from click.shell_completion import shell_complete

import lapis
from lapis._util.terminal import echo
from lapis.cli.groups import Commands
from lapis.errors import EXIT_BAD_INPUT, EXIT_CLOSED_PIPE, EXIT_INTERRUPTED, EXIT_OK, LapisError

NAME = "lapis"
# Letters of an error that are shown.
LONGEST_ERROR = 2000
# With this variable a shell asks for completions, and for the script that switches them on.
COMPLETE = "_LAPIS_COMPLETE"

# In the order in which data flows. The module lapis.cli.<verb> holds the click command `command`.
VERBS = {
    "info": "Show versions, the machine, the kernels in use, and the memory of a model.",
    "doctor": "Check this machine: device, kernels, a bit-exact self-test, speed, what is missing.",
    "train": "Run a training recipe.",
    "finetune": "Train a network for a folder of your own images, pack it and report.",
    "evaluate": "Measure top-1 and top-5 accuracy on a folder of images.",
    "merge": "Combine the results of evaluation shards.",
    "convert": "Convert a trained network to a spiking network and run it.",
    "verify": "Compare the executors of a network, code by code.",
    "pack": "Write a network into one small file.",
    "export": "Write a network as an ONNX file.",
    "unpack": "Show what a packed file holds.",
    "publish": "Write the folder of a hub repository, with a model card.",
    "predict": "Classify images with a packed network.",
    "energy": "Estimate the energy per image, operator by operator, and compare with the paper.",
    "explain": "Write a page that shows how a network classified one image.",
    "demo": "Try Lapis on real images.",
}


class Verbs(Commands):
    """A group whose commands are imported one at a time."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"lapis.cli.{cmd_name}").command
        command.name = cmd_name
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(lapis.__version__, prog_name="lapis")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def app(debug: bool) -> None:
    """Laplacian spiking attention: train, convert exactly to first spikes, run in integers.

    Exit codes: 0 done, 1 a check failed, 2 bad input, 3 some images could not be read, 130 interrupted, 141 the reader
    of the output is gone.

    \b
    Example:
      lapis demo
    """


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; errors go to stderr in one line."""
    words = sys.argv[1:] if arguments is None else arguments
    _open_closed_streams()
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
        code = _run(words)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return EXIT_CLOSED_PIPE
    except OSError:  # of standard error itself, as on a full disk
        _drop_output()
        return EXIT_BAD_INPUT
    return code


def _open_closed_streams() -> None:
    """A program started without a standard stream, as by `lapis ... >&-`, has None for it; it gets an empty one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - it stays open


def _run(words: list[str]) -> int:
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
        if "--debug" in words:
            _say_traceback(error)
        echo(f"lapis: error: {_short(error)}", error=True)
        return EXIT_BAD_INPUT
    return result if isinstance(result, int) else EXIT_OK


def _say_traceback(error: BaseException) -> None:
    """Print where an error came from. A place has several lines; a message is one, which it could forge."""
    for entry in traceback.format_exception(error):
        echo(*(entry.rstrip("\n").split("\n") if entry.startswith("  File ") else [entry.strip("\n")]), error=True)


def _short(error: BaseException) -> str:
    """The message of an error, which may quote a name of megabytes from a file."""
    if isinstance(error, MemoryError):
        return f"there is not enough memory for this: {error}; use a smaller model, image or batch"
    text = str(error)
    return text if len(text) <= LONGEST_ERROR else f"{text[:LONGEST_ERROR]}..."


def _drop_output() -> None:
    """Send what is still buffered nowhere: Python would report the closed pipe once more when it ends."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
