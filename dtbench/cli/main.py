"""The entry point: finds the verb, and turns every error into a sentence and an exit code."""

import atexit
import errno
import gc
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, NoReturn

import typer
from typer.core import TyperGroup

from dtbench import __version__
from dtbench.base.errors import NO_ROOM, DtbenchError
from dtbench.base.signals import EXIT_CTRL_C, heed_signals, ignore_signals
from dtbench.cli import baseline
from dtbench.cli.analyze import analyze
from dtbench.cli.catalogue import catalogue
from dtbench.cli.check import check
from dtbench.cli.clean import clean
from dtbench.cli.compare import compare
from dtbench.cli.console import print_error, send_to_nowhere
from dtbench.cli.coverage import coverage
from dtbench.cli.doctor import doctor
from dtbench.cli.execute import execute
from dtbench.cli.export import export
from dtbench.cli.history import history
from dtbench.cli.list_scenarios import list_scenarios
from dtbench.cli.merge import merge
from dtbench.cli.plot import plot
from dtbench.cli.predict import predict
from dtbench.cli.report import report
from dtbench.cli.run import run
from dtbench.cli.runs import runs
from dtbench.cli.schema import schema
from dtbench.cli.selftest import selftest
from dtbench.cli.submit import submit
from dtbench.cli.tensorboard import tensorboard
from dtbench.cli.tune import tune
from dtbench.cli.whatif import whatif
from dtbench.report.words.visible import spell_controls

VERBS: tuple[tuple[str, Callable[..., None]], ...] = (
    ("list", list_scenarios),
    ("check", check),
    ("run", run),
    ("submit", submit),
    ("merge", merge),
    ("execute", execute),
    ("report", report),
    ("runs", runs),
    ("history", history),
    ("analyze", analyze),
    ("compare", compare),
    ("whatif", whatif),
    ("predict", predict),
    ("tune", tune),
    ("tensorboard", tensorboard),
    ("plot", plot),
    ("export", export),
    ("clean", clean),
    ("catalogue", catalogue),
    ("coverage", coverage),
    ("doctor", doctor),
    ("selftest", selftest),
    ("schema", schema),
)
"""In the order of ``dtbench --help``. The modules import only typer at their top: ``--help`` imports them all."""

_MACHINE = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.EIO, errno.ESTALE)
"""What a file system refuses, whatever a program does."""
_EXIT_PIPE = 141  # 128 + SIGPIPE, as shells have it


class _StoppedError(Exception):
    """A signal, on its way through typer, which would otherwise make its own exit code of it."""


class _Verbs(TyperGroup):
    def invoke(self, ctx: typer.Context) -> object:  # type: ignore[override]
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:  # names of files stand in it, which a shell may have found for a person
            error.message = spell_controls(error.message)
            raise
        except KeyboardInterrupt as stop:
            raise _StoppedError from stop


@dataclass
class _GlobalOptions:
    """What stands before the verb; filled in by the callback, read when something fails."""

    debug: bool = False


def make_app(verbs: Sequence[tuple[str, Callable[..., None]]]) -> typer.Typer:
    """Return the command line with these verbs; each function's docstring is its help."""
    app = typer.Typer(
        cls=_Verbs,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_read_global_options)
    for name, function in verbs:
        app.command(name)(function)
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code (see ``dtbench.base.errors``); without arguments, those of the process."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy's threads would take cores from the ranks
    atexit.register(gc.freeze)  # else Python, as it ends, looks through everything for garbage
    given = list(sys.argv[1:] if arguments is None else arguments)
    before = [argument for argument in given if argument == "--debug"]  # wherever a person typed it
    app = make_app(VERBS)
    app.add_typer(baseline.make_group(), name="baseline")
    with heed_signals(to_the_end=arguments is None):
        run_app(app, [*before[:1], *(argument for argument in given if argument != "--debug")])


def run_app(app: typer.Typer, arguments: Sequence[str]) -> None:
    """Run a command line and exit: errors become sentences on standard error, tracebacks only with ``--debug``."""
    options = _GlobalOptions()
    try:
        _call(app, list(arguments), options)
    except BrokenPipeError:  # `dtbench report | head`: the reader has seen enough
        _leave(_EXIT_PIPE)
    except (_StoppedError, KeyboardInterrupt) as stopped:
        print_error("stopped")
        ignore_signals()
        stop = stopped if isinstance(stopped, KeyboardInterrupt) else stopped.__cause__
        sys.exit(getattr(stop, "exit_code", EXIT_CTRL_C))
    except DtbenchError as error:
        if options.debug:
            _print_traceback(error)
        print_error(str(error))
        _leave(error.exit_code)
    except Exception as error:  # noqa: BLE001  the last place that can tell a person what happened
        if options.debug:
            _print_traceback(error)
        print_error(_describe_failure(error))
        _leave(1)


def _call(app: typer.Typer, arguments: list[str], options: _GlobalOptions) -> None:
    """Run a command line; what it printed has been written when it ends, or an error says why not."""
    try:
        app(args=arguments, prog_name="dtbench", obj=options)
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # rich and typer make code 1 of it
            raise end.__context__ from None
        if sys.stdout is not None:
            sys.stdout.flush()
        raise


def _leave(exit_code: int) -> NoReturn:
    """Exit with a code, also where what was printed cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            send_to_nowhere(stream)
    sys.exit(exit_code)


def _describe_failure(error: Exception) -> str:
    if isinstance(error, OSError) and error.errno in NO_ROOM:
        where = error.filename or "the output"
        return f"{where}: cannot be written ({error.strerror}); make room, then run the same command again"
    if isinstance(error, OSError) and error.errno in _MACHINE and error.filename:
        return f"{error.filename}: cannot be read or written ({error.strerror})"
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"This is a bug in dtbench ({what}); run again with `dtbench --debug ...` for the traceback."


def _print_version(wanted: bool) -> None:
    if wanted:
        print(__version__)
        raise typer.Exit


def _read_global_options(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Which communication is not hidden behind compute, who owns it, and why: PyTorch's DTensor, FSDP and DDP."""
    del version  # its callback has printed it
    context.obj.debug = debug


def _print_traceback(error: BaseException) -> None:
    import traceback

    sys.stderr.write(spell_controls("".join(traceback.format_exception(error))))
