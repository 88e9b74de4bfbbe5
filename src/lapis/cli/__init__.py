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
        from lapis.cli.app import run

        return run(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        message, code = "lapis: interrupted", EXIT_INTERRUPTED
    except MemoryError:
        message, code = (
            "lapis: error: there is not enough memory to start; close programs or raise the limit",
            EXIT_BAD_INPUT,
        )
    print(message, file=sys.stderr)
    return code
