"""The one exception that Lapis raises for input it cannot accept, and the exit codes of its commands."""

from __future__ import annotations

EXIT_OK = 0
EXIT_CHECK_FAILED = 1  # the command ran, and a check failed
EXIT_BAD_INPUT = 2  # arguments, files or values that cannot be accepted
EXIT_INCOMPLETE = 3  # some of the images could not be read; the others were answered
EXIT_INTERRUPTED = 130  # Ctrl-C, as shells report it
EXIT_CLOSED_PIPE = 141  # the reader of the output is gone, as after `| head`; shells report SIGPIPE so


class LapisError(ValueError):
    """Bad input. The message says what was seen, what is allowed and what to do."""
