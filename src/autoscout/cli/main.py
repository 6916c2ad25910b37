"""The command line: verb first, target second. Errors print one clear message and exit with a stable code.

Every import here is paid by every call, `--version` and shell completion too: verbs are imported when called (`cli/verbs.py`).
"""

from __future__ import annotations

import io
import json
import logging
import sys
from typing import Annotated

import typer
import typer.main

from autoscout import __version__
from autoscout.cli._streams import mute
from autoscout.cli.complete import answering
from autoscout.cli.verbs import Verbs
from autoscout.core.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, AutoScoutError, ConfigError, Fault
from autoscout.core.log import NOTICES, logger
from autoscout.core.secrecy import hide_secrets, without_secrets

log = logger(__name__)

app = typer.Typer(
    name="autoscout",
    cls=Verbs,
    help="Finds which settings to run an ML system with, by few real measurements.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # tables cut names in narrow terminals and in pipes
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"autoscout {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    verbose: Annotated[int, typer.Option("--verbose", "-v", count=True, help="Log to standard error; twice for details.")] = 0,
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,  # noqa: ARG001
) -> None:
    if verbose:
        handler = logging.StreamHandler()
        handler.setFormatter(_Discreet("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        logging.basicConfig(level=logging.INFO if verbose == 1 else logging.DEBUG, handlers=[handler])
    else:
        _show_notices()


class _Discreet(logging.Formatter):
    """Lines of the log without secrets."""

    def format(self, record: logging.LogRecord) -> str:
        return hide_secrets(super().format(record))


class _Notices(logging.Handler):
    """Prints what somebody who waits should read at once, such as who uses the GPUs a study waits for."""

    def emit(self, record: logging.LogRecord) -> None:
        from autoscout.cli import options  # on use: `--version` need not pay for it

        options.errors.print(record.getMessage(), style="yellow", markup=False, highlight=False, soft_wrap=True)


def _show_notices() -> None:
    """Print notices on standard error, next to a progress display; calling it twice does nothing more."""
    notices = logging.getLogger(NOTICES)
    if not any(isinstance(handler, _Notices) for handler in notices.handlers):
        notices.addHandler(_Notices())


def whole_program() -> Verbs:
    """The program with every verb loaded, for the reference and the tests; a run loads only the verb that is called."""
    program = typer.main.get_command(app)
    assert isinstance(program, Verbs)
    return program.load_all()


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `autoscout` program."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal without our letters is no reason to lose a result
    try:
        with answering():
            code = app(arguments, standalone_mode=False)
    except AutoScoutError as error:
        _print_error(error, as_json="--json" in arguments)
        sys.exit(error.exit_code)
    except typer.Exit as leave:
        sys.exit(leave.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        mute(sys.stdout)
        sys.exit(0)
    except OSError as error:  # standard output on a full disk, a folder that vanished: the world's fault, not ours
        log.debug("ended by the system", exc_info=True)
        mute(sys.stdout)
        _print_error(AutoScoutError(Fault(where=str(error.filename or "output"), rule=error.strerror or str(error))), as_json=False)
        sys.exit(EXIT_BAD_INPUT)
    except Exception as error:
        if show := getattr(error, "show", None):  # click's own: unknown flag, missing argument
            if "--json" in arguments:
                _print_error(ConfigError(Fault(where="command line", rule=str(error))), as_json=True)
            else:
                show()
            sys.exit(getattr(error, "exit_code", EXIT_BAD_INPUT))
        raise
    sys.exit(code if isinstance(code, int) else 0)


def _print_error(error: AutoScoutError, *, as_json: bool) -> None:
    if as_json:
        faults = [{name: value for name, value in vars(fault).items() if value} for fault in error.faults]
        typer.echo(json.dumps(without_secrets({"error": type(error).__name__, "faults": faults})))
        return
    for fault in error.faults:
        typer.echo(f"autoscout: {hide_secrets(str(fault))}", err=True)
