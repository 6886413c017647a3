"""The command line. ``main`` returns the exit code and turns every mistake into one line on standard error.

A new command is a function in ``flashperf/commands`` that returns its exit code, and one line in ``build``.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import typer

from flashperf.commands import bench, compare, machine, selfcheck
from flashperf.commands.advise import advise
from flashperf.commands.cases import cases
from flashperf.commands.claims import claims
from flashperf.commands.crossover import crossover
from flashperf.commands.explain import explain
from flashperf.commands.history import history
from flashperf.commands.inspect import inspect
from flashperf.commands.report import report
from flashperf.commands.roofline import roofline
from flashperf.commands.roofs import roofs
from flashperf.commands.scenario import scenario
from flashperf.commands.traffic import traffic
from flashperf.errors import EXIT_BAD_ARGUMENTS, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, UserError

HELP = "Explain by measurement why the fast variant of a model is slow."
DEBUG = "FLASHPERF_DEBUG"
#: What the parser raises for bad usage; found through typer, which in newer versions carries its own click.
UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def build() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(help=HELP, no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode=None)
    passes_on = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command()(interruptible(explain))
    app.command()(interruptible(report))
    app.command(context_settings=passes_on)(interruptible(bench.bench))
    app.command()(interruptible(traffic))
    app.command()(interruptible(inspect))
    app.command()(interruptible(compare.compare))
    app.command()(interruptible(history))
    for command in (roofs, roofline, crossover, advise):
        app.command()(interruptible(command))
    app.command()(interruptible(cases))
    app.command()(interruptible(claims))
    app.command()(interruptible(scenario))
    app.command()(interruptible(machine.mechanisms))
    app.command()(interruptible(machine.env))
    app.command()(interruptible(machine.version))
    checks = typer.Typer(help="Check flashperf's own accuracy.", no_args_is_help=True)
    checks.command()(interruptible(selfcheck.attribution))
    checks.command()(interruptible(selfcheck.prediction))
    checks.command()(interruptible(selfcheck.gate))
    app.add_typer(checks, name="selfcheck")
    return app


def interruptible(command: Callable[..., int]) -> Callable[..., int]:
    """The command with Ctrl-C as an error of its own; the parser would swallow it without a word."""

    @functools.wraps(command)
    def run(*arguments: Any, **options: Any) -> int:
        try:
            return command(*arguments, **options)
        except KeyboardInterrupt:
            raise UserError("interrupted", EXIT_INTERRUPTED) from None

    return run


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command (default: the program's arguments) and return its exit code.

    0 done, 1 something broke, 2 bad arguments or input, 3 measured but too noisy, 130 interrupted. With
    FLASHPERF_DEBUG=1 the traceback is printed too.
    """
    _end_like_ctrl_c()
    given = sys.argv[1:] if arguments is None else list(arguments)
    try:
        code = build()(args=given, prog_name="flashperf", standalone_mode=False)
        sys.stdout.flush()
        return code if isinstance(code, int) else EXIT_OK
    except (KeyboardInterrupt, typer.Abort):
        return failed("interrupted", EXIT_INTERRUPTED)
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # nothing more to write, nothing to say
        return EXIT_FAILED
    except UserError as error:
        return failed(str(error), error.exit_code)
    except UsageError as error:
        return _bad_usage(error)
    except ValueError as error:
        return failed(str(error) or type(error).__name__, EXIT_BAD_ARGUMENTS)
    except Exception as error:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        hint = "" if os.environ.get(DEBUG) == "1" else f" ({DEBUG}=1 shows where)"
        return failed(f"{what}{hint}", EXIT_FAILED)


def _end_like_ctrl_c() -> None:
    """SIGTERM and SIGHUP stop a measurement as Ctrl-C does: what was measured is kept, no process is left behind."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, interrupt)


def failed(message: str, code: int) -> int:
    """One line on standard error; the traceback before it if it was asked for. Returns the code."""
    if os.environ.get(DEBUG) == "1":
        traceback.print_exc()
    print(f"flashperf: {' '.join(message.split())}", file=sys.stderr)
    return code


def _bad_usage(error: Exception) -> int:
    """What the parser has to say, and where the help is; for a bare ``flashperf``, the help itself."""
    context = getattr(error, "ctx", None)
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    if type(error).__name__ == "NoArgsIsHelpError":
        print(message)
        return EXIT_BAD_ARGUMENTS
    path = context.command_path if context is not None else "flashperf"
    return failed(f"{message.rstrip('.')}. See {path} --help.", EXIT_BAD_ARGUMENTS)


if __name__ == "__main__":
    sys.exit(main())
