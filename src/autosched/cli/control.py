"""`autoscout sched control` and the verbs around it: keep the settings of a live scheduler tuned."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import math
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from autosched.tune.explain import moment as shown
from autoscout.cli import options
from autoscout.core.clock import RealClock
from autoscout.core.errors import ConfigError, Fault, PluginError

if TYPE_CHECKING:  # what a verb does not need it does not load: most of them read a few rows of the ledger
    from autosched.control.controller import Controller
    from autosched.control.ledger import Ledger
    from autosched.control.repository import WorkloadRepository
    from autosched.control.settings import ServiceBlock, Settings
    from autosched.service.metrics import MetricsServer

Config = Annotated[Path, typer.Argument(help="YAML file of the controller; see the guide.")]
Number = Annotated[int, typer.Argument(help="Number of the decision; `autoscout sched history` lists them.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON object on standard output.")]


def control(
    config: Config,
    once: Annotated[bool, typer.Option("--once", help="Look and decide once, then end.")] = False,
    what_if: Annotated[str, typer.Option("--what-if", help="Only predict the gain of every value of this knob on the current queue.")] = "",
    history: Annotated[list[str] | None, typer.Option("--import", help="First import the jobs of this trace; may be repeated.")] = None,
    until: Annotated[str, typer.Option("--until", help="End at this date or second of the cluster's clock.")] = "",
    as_json: Json = False,
) -> None:
    """Watch a cluster and tune its scheduler: observe, propose or apply, within the bounds of the file."""
    from autosched.control.begin import controller
    from autosched.control.explain import one_line
    from autosched.control.settings import read_settings
    from autosched.live_scheduler import LiveError
    from autosched.source import moment

    settings = read_settings(config)
    with contextlib.nullcontext() if what_if else _alone(settings):  # a question may be asked while the controller runs
        running = controller(settings)
        try:
            _import(running.repository, settings.cluster, history or [])
            if what_if:
                running.look()
                show_what_if(running.what_if(what_if), what_if, as_json)
                return
            if once:
                running.tick()
                if not running.state.healthy:
                    raise LiveError(Fault(where=settings.cluster, rule=running.state.words))
                entries = running.ledger.history(most=1)
                _show([one_line(entry) for entry in entries] or [running.state.words], [entry.to_json() for entry in entries], as_json)
                return
            _serve(running, settings, moment(until, "until", math.inf))
        finally:
            running.close()


def status(config: Config, as_json: Json = False) -> None:
    """Show the settings in force, the queue, and what waits for approval."""
    from autosched.control.explain import late, one_line

    with _ledger(config) as (settings, ledger):
        last_sample = ledger.last_sample()
        waiting = ledger.in_state("proposed", "approved", "applying", "unsure", "applied")
        if as_json:
            sample = {} if last_sample is None else {"at_s": last_sample[0], **last_sample[1]}
            options.emit({"cluster": settings.cluster, "mode": settings.mode, **sample, "open": [entry.to_json() for entry in waiting]})
            return
        if last_sample is None:
            options.console.print("No controller has looked at this cluster yet.", markup=False, highlight=False)
            return
        table = Table("setting", "value")
        for name, value in last_sample[1]["settings"].items():
            table.add_row(name, str(value))
        options.console.print(table)
        about = last_sample[1]
        jobs = f"{about['waiting']} jobs wait, {about['running']} run, load {about['load']:.2f}"
        warning = "" if settings.simulated else late(last_sample[0], settings.look, RealClock().now_s())
        head = f"{settings.cluster}, mode {settings.mode}, {shown(last_sample[0])}: {jobs}"
        _show([head, *([warning] if warning else []), *(one_line(entry) for entry in waiting)], [], False)


def history(
    config: Config,
    days: Annotated[float, typer.Option("--days", min=0.01, help="The last days.")] = 7.0,
    report: Annotated[Path | None, typer.Option("--report", help="Write report.md and plots of these days into this folder.")] = None,
    as_json: Json = False,
) -> None:
    """List the decisions of the last days, and write the report about them."""
    from autosched.control.explain import one_line

    with _ledger(config) as (settings, ledger):
        sample = ledger.last_sample()
        to_s = (sample[0] if sample else RealClock().now_s()) + 1.0
        entries = ledger.history(to_s - days * 86_400.0)
        if report:
            from autosched.control.report import write_report

            write_report(ledger, report, to_s - days * 86_400.0, to_s, simulated=settings.simulated)
        lines = [one_line(entry) for entry in entries] or ["No decision yet."]
        _show([*lines, *([f"Report in {report}"] if report else [])], [entry.to_json() for entry in entries], as_json)


def explain(config: Config, number: Number, as_json: Json = False) -> None:
    """Say why a decision was made, how sure it was, and what became of it."""
    from autosched.control.explain import explanation

    with _ledger(config) as (_, ledger):
        entry = ledger.entry(number)
        _show([explanation(entry, ledger.log(decision=number))], [entry.to_json()], as_json)


def propose(
    config: Config,
    settings: Annotated[list[str], typer.Argument(metavar="KNOB=VALUE...", help="Settings to have; `autoscout sched status` lists them.")],
    approved: Annotated[bool, typer.Option("--approved", help="It needs nobody else's approval.")] = False,
    as_json: Json = False,
) -> None:
    """Ask for other settings; the controller checks its bounds, applies them once they are approved, and judges them like its own."""
    from autosched.control import actions
    from autosched.control.explain import one_line

    with _ledger(config) as (about, ledger):
        actions.require_changing(about.mode)
        pairs = [text.partition("=") for text in settings]
        if odd := [text for text, (_, equals, value) in zip(settings, pairs, strict=True) if not equals or not value]:
            raise ConfigError([Fault(where="propose", value=text, rule="must read KNOB=VALUE") for text in odd])
        changes = {name: value for name, _, value in pairs}
        entry = actions.propose(ledger, changes, getpass.getuser(), _now_s(about, ledger), approved=approved)
        _show([one_line(entry)], [entry.to_json()], as_json)


def approve(
    config: Config,
    number: Number,
    refuse: Annotated[bool, typer.Option("--refuse", help="Refuse it instead.")] = False,
    as_json: Json = False,
) -> None:
    """Approve a proposal; the controller applies it at its next look."""
    from autosched.control import actions
    from autosched.control.explain import one_line

    with _ledger(config) as (settings, ledger):
        actions.require_changing(settings.mode)
        act = actions.refuse if refuse else actions.approve
        entry = act(ledger, number, getpass.getuser(), _now_s(settings, ledger))
        _show([one_line(entry)], [entry.to_json()], as_json)


def rollback(config: Config, number: Number, as_json: Json = False) -> None:
    """Bring back the settings before a change; the controller does it at its next look."""
    from autosched.control import actions
    from autosched.control.explain import one_line

    with _ledger(config) as (settings, ledger):
        actions.require_changing(settings.mode)
        user = getpass.getuser()
        entry = actions.roll_back(ledger, number, user, f"asked for by {user}", _now_s(settings, ledger))
        _show([one_line(entry)], [entry.to_json()], as_json)


def _now_s(settings: Settings, ledger: Ledger) -> float:
    """Now; in a cluster that is replayed, when it was last looked at."""
    sample = ledger.last_sample() if settings.simulated else None
    return sample[0] if sample else RealClock().now_s()


@contextmanager
def _ledger(config: Path) -> Iterator[tuple[Settings, Ledger]]:
    from autosched.control.ledger import Ledger
    from autosched.control.settings import read_settings

    settings = read_settings(config)
    if "://" not in settings.target and not Path(settings.target).exists():
        rule, fix = "no controller has looked at this cluster yet", f"autoscout sched control {config}"
        raise ConfigError(Fault(where=settings.target, rule=rule, fix=fix))
    ledger = Ledger(settings.target, settings.cluster, create=False)
    try:
        yield settings, ledger
    finally:
        ledger.close()


@contextmanager
def _alone(settings: Settings) -> Iterator[None]:
    """One controller per folder."""
    folder = Path(settings.folder)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            rule, fix = "another controller is running here", "Stop it, or give this one a folder of its own"
            raise ConfigError(Fault(where=str(folder), rule=rule, fix=fix)) from error
        yield


def _import(repository: WorkloadRepository, cluster: str, sources: list[str]) -> None:
    from autosched.events import events_of_trace
    from autosched.source import load_trace

    for source in sources:
        added = repository.add(cluster, events_of_trace(load_trace(source)))
        options.errors.print(f"{source}: {added.new} new events, {added.known} known", markup=False, highlight=False)


def _serve(active: Controller, settings: Settings, until_s: float) -> None:
    """Run until told to stop, with the service where the file asks for one."""
    stop = threading.Event()
    before = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    running, after = [], [_teller(active.ledger)]
    if settings.service is not None:
        try:
            from autosched.service.server import ControlServer
        except ImportError as error:
            rule = f"the service needs packages that are not installed ({error})"
            raise PluginError(Fault(where="service", rule=rule, fix="pip install 'autoscout[control]'")) from error
        server = ControlServer(active, settings.service)
        server.start()
        after.append(server.tell_health)
        running.append(server.stop)
        options.errors.print(f"service on port {server.port}", markup=False, highlight=False)
        if not settings.service.tokens and settings.mode != "observe":
            words = "the service has no tokens: everybody who has an account on this machine may approve and apply settings"
            options.errors.print(words, style="yellow", markup=False, highlight=False)
        if settings.service.metrics:
            metrics = _metrics(active, settings.service)
            metrics.start()
            running.append(metrics.stop)
            options.errors.print(f"metrics on port {metrics.port}", markup=False, highlight=False)

    def tell_all() -> None:
        for tell in after:
            tell()

    active.after_tick = tell_all
    try:
        active.run(stop, until_s)
    finally:
        for end in running:
            end()
        for number, handler in before.items():
            signal.signal(number, handler)


def _teller(ledger: Ledger) -> Callable[[], None]:
    """Prints what was added to the audit log since it was last called."""
    last = ledger.last_line()

    def tell() -> None:
        nonlocal last
        for number, at_s, decision, event, words in ledger.log(after=last):
            line = f"{shown(at_s)}{f' decision {decision}' if decision else ''} {event}: {words.partition(chr(10))[0]}"
            options.errors.print(line, markup=False, highlight=False, soft_wrap=True)
            last = number

    return tell


def _metrics(running: Controller, about: ServiceBlock) -> MetricsServer:
    """The figures for Prometheus, behind the tokens and the certificate of the service where it has them."""
    import ssl

    from autosched.service.access import Tokens, check_exposure
    from autosched.service.metrics import MetricsServer

    assert about.metrics
    check_exposure(about.metrics, bool(about.certificate), bool(about.tokens), "service")
    tls = None
    if about.certificate and about.key:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(about.certificate, about.key)
    return MetricsServer(running, about.metrics, Tokens.read(Path(about.tokens)) if about.tokens else None, tls)


def show_what_if(rows: Sequence[tuple[object, float]], knob: str, as_json: bool) -> None:
    """Print what every value of a knob is predicted to gain, and which are not known."""
    if as_json:
        gains = [{"value": value, "gain": gain if math.isfinite(gain) else None} for value, gain in rows]
        options.emit({"knob": knob, "gains": gains, "fidelity": "simulated"})
        return
    table = Table(knob, "predicted gain")
    for value, gain in rows:
        table.add_row(str(value), f"{gain:.3f}x" if math.isfinite(gain) else "-")
    options.console.print(table)
    if missing := [str(value) for value, gain in rows if not math.isfinite(gain)]:
        words = f"No gain is known for {', '.join(missing)}: jobs would not end with it, or it takes far too long to simulate."
        options.console.print(words, markup=False, highlight=False)


def _show(lines: list[str], data: list[dict[str, object]], as_json: bool) -> None:
    if as_json:
        options.emit({"decisions": data})
        return
    for line in lines:
        options.console.print(line, markup=False, highlight=False, soft_wrap=True)
