"""The `lapis` command: `main` is its entry point.

Nothing else is imported with this module, so that Ctrl-C and a lack of memory end the command in one line even while
its packages load. `lapis.cli.app` holds the table of commands; each is imported when it is called.
"""

from __future__ import annotations

import sys

from lapis.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return its exit code; errors go to stderr in one line."""
    try:
        from lapis.cli.app import run_command_line

        return run_command_line(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        message, code = "lapis: interrupted", EXIT_INTERRUPTED
    except (MemoryError, ImportError) as error:
        # A library that does not fit into memory makes its import fail.
        if isinstance(error, ImportError) and "failed to map segment" not in str(error):
            raise
        message, code = "lapis: error: there is not enough memory; close programs or raise the limit", EXIT_BAD_INPUT
    print(message, file=sys.stderr)
    return code
