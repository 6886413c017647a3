"""The one exception for what a user can put right: one line on the command line, without a traceback."""

from __future__ import annotations

EXIT_OK = 0
EXIT_FAILED = 1  # something broke: a worker that died, or a bug
EXIT_BAD_ARGUMENTS = 2
EXIT_TOO_NOISY = 3  # measured, but the intervals are wider than the aim
EXIT_INTERRUPTED = 130  # Ctrl-C: what was measured was kept and reported as partial


class UserError(Exception):
    """A mistake in the input, or a thing missing on the machine, said so that the user can act on it.

    The message is one or a few plain sentences; ``exit_code`` is what the command line returns for it.
    """

    def __init__(self, message: str, exit_code: int = EXIT_BAD_ARGUMENTS) -> None:
        super().__init__(message)
        self.exit_code = exit_code
