"""The application: which address shows what, and how it is served."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import uvicorn
from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, PlainTextResponse, RedirectResponse, StreamingResponse
from starlette.exceptions import HTTPException as AnyHTTPException

from autoscout import __version__
from autoscout.common.fields import refuse_if
from autoscout.common.openmetrics import MEDIA_TYPE
from autoscout.core.actions import Action, ActionKind
from autoscout.core.errors import AutoScoutError, ConfigError, Fault
from autoscout.core.secrecy import hide_secrets
from autoscout.core.trial import Trial
from autoscout.report.page import asset
from autoscout.web import api, pages, trial_pages
from autoscout.web.actions import read_action
from autoscout.web.extension import Extension, Followed
from autoscout.web.figures import study_metrics
from autoscout.web.guard import FAILED_PAUSE_S, MOST_BODY, SESSION_S, AccessGuard, Sessions, is_loopback
from autoscout.web.library import Library, StudyEntry
from autoscout.web.live import LiveView
from autoscout.web.responses import json_response, session_of
from autoscout.web.studies import StudyQuery
from autoscout.web.trials import TrialQuery

EVENT_S = 0.4  # between two looks whether a page must change
BEAT_S = 15.0  # of silence, after which a comment tells proxies and browsers that the connection lives
MOST_COMPARED = 12  # studies on one page
MOST_FILE = 32 * 1024 * 1024
"""Bytes of a log that are sent."""

BACK = {ActionKind.DESCRIBE: "content"}
"""Where a page is shown after a form of some kinds; the others lead back to the list of actions."""

STATIC = {
    "page.css": "text/css",
    "page.js": "text/javascript",
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
}
"""Files that pages load, and their kinds; those of a report are the report's own."""


def build_app(
    library: Library, *, token: str = "", host: str = "127.0.0.1", ending: Callable[[], bool] = lambda: False, secure: bool = False
) -> AccessGuard:
    """The dashboard of a library, guarded.

    Args:
        library: The studies.
        token: What actions need; empty: there are none.
        host: The address it will listen on.
        ending: Whether the server wants to end, so that streams of events end too.
        secure: Whether it is served with TLS: browsers then send the cookie over nothing else.

    Raises:
        ConfigError: the address can be reached from elsewhere and there is no token.
    """
    local = is_loopback(host)
    if not local and not token:
        rule, fix = "an address that others can reach needs a token", "Give --token-file FILE, or keep to 127.0.0.1 and use ssh -L"
        raise ConfigError(Fault(where="dashboard", field="host", value=host, rule=rule, fix=fix))
    app = FastAPI(title="AutoScout dashboard", version=__version__, docs_url=None, redoc_url=None, openapi_url="/api/openapi.json")
    desk = _Desk(library, Sessions(token=token), ending, secure=secure)
    html: dict[str, Any] = {"response_class": HTMLResponse, "include_in_schema": False}
    forms: dict[str, Any] = {
        "/login": desk.login,
        "/logout": desk.logout,
        "/archive": desk.archive,
        "/unarchive": desk.unarchive,
        "/studies/{key}/actions": desk.act,
    }
    parts: tuple[_Desk | Extension, ...] = (desk, *library.extensions)
    for path, handler in (route for part in parts for route in part.pages().items()):
        app.add_api_route(path, handler, methods=["GET"], **html)
    for path, handler in (route for part in parts for route in part.documents().items()):
        app.add_api_route(path, handler, methods=["GET"], response_class=Response)
    for path, handler in forms.items():
        app.add_api_route(path, handler, methods=["POST"], **html)
    app.add_api_route("/api/studies/{key}/actions", desk.act_document, methods=["POST"], response_class=Response)
    app.add_exception_handler(AutoScoutError, _refused)
    app.add_exception_handler(AnyHTTPException, _missing)  # of our own, and of addresses that nobody knows
    app.add_exception_handler(RequestValidationError, _nonsense)
    app.add_exception_handler(OSError, _gone)
    hosts = frozenset({"127.0.0.1", "localhost", "::1", host.strip("[]").lower()})
    return AccessGuard(app=app, sessions=desk.sessions, private=not local, hosts=hosts)


def make_server(
    library: Library, *, host: str = "127.0.0.1", token: str = "", certificate: Path | None = None, key: Path | None = None
) -> Any:
    """A server whose `run(sockets=[...])` serves until interrupted; requests are not logged: addresses say what people look at.

    Raises:
        ConfigError: it would be open to others without a token, or certificate and key cannot be used; all faults at once.
    """
    refuse_if(certificate_faults(certificate, key))
    app = build_app(library, token=token, host=host, ending=lambda: bool(server.should_exit), secure=certificate is not None)
    tls = {} if certificate is None else {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
    settings: dict[str, Any] = {"log_level": "warning", "access_log": False, "server_header": False, "lifespan": "off", **tls}
    server: Any = uvicorn.Server(uvicorn.Config(app, timeout_graceful_shutdown=2, **settings))
    return server


def certificate_faults(certificate: Path | None, key: Path | None) -> list[Fault]:
    """What is wrong with the two files of TLS; nothing where none is asked for."""
    where = "dashboard"
    if certificate is None and key is None:
        return []
    files = {"certificate": certificate, "key": key}
    faults = [Fault(where=where, field=name, rule="TLS needs certificate and key") for name, path in files.items() if path is None]
    for name, path in files.items():
        try:
            if path is not None:
                path.read_bytes()
        except OSError as error:
            faults.append(Fault(where=where, field=name, value=str(path), rule=f"cannot be read: {error.strerror}"))
    if not faults:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(str(certificate), str(key), password="")
        except ssl.SSLError as error:
            rule = f"does not go with the key, or one of them is not PEM: {error.reason or error}"
            faults.append(Fault(where=where, field="certificate", value=str(certificate), rule=rule))
    return faults


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens on an address; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host.strip("[]"), port))
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener


class _Desk:
    """Handlers; each reads what it was asked for and calls what makes the answer."""

    def __init__(self, library: Library, sessions: Sessions, ending: Callable[[], bool], *, secure: bool = False) -> None:
        self.library = library
        self.secure = secure
        self.sessions = sessions
        self.ending = ending

    def pages(self) -> Mapping[str, Any]:
        """Routes that return pages."""
        return {
            "/": self.studies,
            "/login": self.login_page,
            "/compare": self.compare,
            "/static/{name}": self.static,
            "/studies/{key}": self.study,
            "/studies/{key}/parts/{name}": self.part,
            "/studies/{key}/trials": self.trials,
            "/studies/{key}/trials/{number}": self.trial,
            "/studies/{key}/trials/{number}/files/{name}": self.file,
            "/studies/{key}/diff": self.diff,
            "/studies/{key}/knobs": self.knobs,
        }

    def documents(self) -> Mapping[str, Any]:
        """Routes that return JSON."""
        return {
            "/metrics": self.metrics,
            "/api/health": self.health,
            "/api/events": self.events,
            "/api/studies": self.studies_document,
            "/api/compare": self.compare_document,
            "/api/studies/{key}": self.study_document,
            "/api/studies/{key}/trials": self.trials_document,
            "/api/studies/{key}/trials/{number}": self.trial_document,
            "/api/studies/{key}/diff": self.diff_document,
            "/api/studies/{key}/knobs/{knob}": self.knob_document,
        }

    # --- pages ---

    def static(self, name: str) -> Response:
        if name not in STATIC:
            raise HTTPException(404, "There is no such file.")
        text = asset(name) if name.startswith("page.") else (files("autoscout.web") / "static" / name).read_text(encoding="utf-8")
        return Response(text, media_type=STATIC[name])

    def studies(self, request: Request, text: str = "", state: str = "", tag: str = "") -> HTMLResponse:
        return HTMLResponse(pages.studies_page(self.library, StudyQuery(text=text, state=state, tag=tag), session_of(request)))

    def study(self, request: Request, key: str) -> HTMLResponse:
        entry, view = self._open(key)
        return HTMLResponse(pages.study_page(entry, view, session_of(request), bool(self.sessions.token)))

    def part(self, key: str, name: str) -> HTMLResponse:
        content = pages.later_part(*self._open(key), name)
        if content is None:
            raise HTTPException(404, "There is no such part.")
        return HTMLResponse(content)

    def trials(
        self, request: Request, key: str, page: int = 1, sort: str = "number", down: bool = True, status: str = "", text: str = ""
    ) -> HTMLResponse:
        query = TrialQuery(page=page, sort=sort, down=down, status=status, text=text)
        return HTMLResponse(pages.trials_page(*self._open(key), query, session_of(request)))

    def trial(self, request: Request, key: str, number: int) -> HTMLResponse:
        entry, view = self._open(key)
        return HTMLResponse(trial_pages.trial_page(entry, view, _trial(view, number), session_of(request)))

    def file(self, key: str, number: int, name: str) -> PlainTextResponse:
        _, view = self._open(key)
        logs = {path.name: path for path in view.folder.launch_files(_trial(view, number).measurement.folder)} if view.folder else {}
        if name not in logs or Path(name).suffix not in (".log", ".txt"):
            raise HTTPException(404, "There is no such file.")
        with logs[name].open("rb") as file:
            text = file.read(MOST_FILE).decode("utf-8", errors="replace")
        return PlainTextResponse(trial_pages.variable_names(text) if name == "env.txt" else hide_secrets(text, view.secrets))

    def diff(self, request: Request, key: str, trial: list[int] = Query(default=[])) -> HTMLResponse:  # noqa: B008 - FastAPI's way
        entry, view = self._open(key)
        return HTMLResponse(trial_pages.diff_page(entry, view, *_two(view, trial), session_of(request)))

    def knobs(self, request: Request, key: str, knob: str = "", other: str = "") -> HTMLResponse:
        return HTMLResponse(pages.knobs_page(*self._open(key), knob, other, session_of(request)))

    def compare(self, request: Request, study: list[str] = Query(default=[])) -> HTMLResponse:  # noqa: B008
        return HTMLResponse(pages.compare_page(self._chosen(study)[:MOST_COMPARED], session_of(request)))

    def login_page(self) -> HTMLResponse:
        return HTMLResponse(pages.login_page(refused=False, can_act=bool(self.sessions.token)))

    # --- documents ---

    def metrics(self) -> Response:
        return Response(hide_secrets(study_metrics(self.library)), media_type=MEDIA_TYPE)

    def health(self) -> Response:
        return json_response({"status": "ok", "version": __version__})

    def studies_document(self, text: str = "", state: str = "", tag: str = "") -> Response:
        return json_response(api.studies_document(self.library, StudyQuery(text=text, state=state, tag=tag)))

    def study_document(self, key: str) -> Response:
        return json_response(api.study_document(*self._open(key)))

    def trials_document(
        self, key: str, page: int = 1, sort: str = "number", down: bool = True, status: str = "", text: str = ""
    ) -> Response:
        return json_response(api.trials_document(self._open(key)[1], TrialQuery(page=page, sort=sort, down=down, status=status, text=text)))

    def trial_document(self, key: str, number: int) -> Response:
        view = self._open(key)[1]
        return json_response(api.trial_document(view, _trial(view, number)))

    def diff_document(self, key: str, trial: list[int] = Query(default=[])) -> Response:  # noqa: B008
        view = self._open(key)[1]
        return json_response(api.diff_document(view, *_two(view, trial)))

    def knob_document(self, key: str, knob: str) -> Response:
        return json_response(api.knob_document(self._open(key)[1], knob))

    def compare_document(self, study: list[str] = Query(default=[])) -> Response:  # noqa: B008
        return json_response(api.compare_document(self._chosen(study)[:MOST_COMPARED]))

    async def events(self, study: str = "all") -> StreamingResponse:
        """Server-sent events: one whenever what a page shows has changed."""
        if study != "all" and self.library.followed(study) is None:
            raise HTTPException(404, "There is no such study or cluster.")
        return StreamingResponse(self._changes(study), media_type="text/event-stream")

    async def _changes(self, study: str) -> AsyncIterator[str]:
        last, silent_s = -1, 0.0
        while not self.ending():
            version = self._version(study)
            if version != last:
                last, silent_s = version, 0.0
                yield f"event: change\ndata: {version}\n\n"
            elif silent_s >= BEAT_S:
                silent_s = 0.0
                yield ": still here\n\n"
            await asyncio.sleep(EVENT_S)
            silent_s += EVENT_S

    def _version(self, study: str) -> int:
        if study == "all":
            return self.library.version + sum(entry.version for entry in self.library.all_followed())
        entry: Followed | None = self.library.followed(study)
        return entry.version if entry else 0

    # --- what changes something ---

    async def login(self, request: Request) -> Response:
        form = await _form(request)
        name = self.sessions.begin(form.get("token", ""))
        if name is None:
            await asyncio.sleep(FAILED_PAUSE_S)
            return HTMLResponse(pages.login_page(refused=True, can_act=bool(self.sessions.token)), status_code=403)
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(
            self.sessions.cookie, name, max_age=int(SESSION_S), httponly=True, secure=self.secure, samesite="strict", path="/"
        )
        return answer

    async def logout(self, request: Request) -> Response:
        _check_csrf(request, await _form(request))
        self.sessions.end(request.state.cookie)
        answer = RedirectResponse("/", status_code=303)
        answer.delete_cookie(self.sessions.cookie, path="/")
        return answer

    async def archive(self, request: Request) -> Response:
        return await self._put_away(request, archived=True)

    async def unarchive(self, request: Request) -> Response:
        return await self._put_away(request, archived=False)

    async def _put_away(self, request: Request, *, archived: bool) -> Response:
        """Archive the studies that are ticked in a list, or bring them back."""
        form = await _fields(request)
        _check_csrf(request, {name: values[0] for name, values in form.items()})
        for entry in self._chosen(form.get("study", [])):
            await asyncio.to_thread(entry.act, Action(kind=ActionKind.DESCRIBE, words={"archived": archived}))
        return RedirectResponse("/", status_code=303)

    async def act(self, request: Request, key: str) -> Response:
        form = await _form(request)
        _check_csrf(request, form)
        entry, view = await asyncio.to_thread(self._open, key)
        action = read_action(form, view)
        await asyncio.to_thread(entry.act, action)
        back = f"/studies/{key}/trials/{action.trial}" if action.trial >= 0 else f"/studies/{key}#{BACK.get(action.kind, 'actions')}"
        return RedirectResponse(back, status_code=303)

    async def act_document(self, request: Request, key: str) -> Response:
        """Ask something of a study: a JSON object with `kind` and what goes with it; needs the token as a bearer."""
        session = session_of(request)
        if session is None or session.csrf:  # a cookie travels by itself, also from a page of somebody else
            raise HTTPException(403, "Send the token as `Authorization: Bearer TOKEN`.")
        try:
            fields = json.loads(await _body(request))
        except (ValueError, RecursionError):
            fields = None
        if not isinstance(fields, dict):
            raise ConfigError(Fault(where="action", rule="must be a JSON object"))
        entry, view = await asyncio.to_thread(self._open, key)
        stored = await asyncio.to_thread(entry.act, read_action(fields, view))
        return json_response(stored.to_json(), status=201)

    # --- looking up ---

    def _open(self, key: str) -> tuple[StudyEntry, LiveView]:
        entry = self.library.entry(key)
        if entry is None:
            raise HTTPException(404, "There is no such study.")
        return entry, entry.view()

    def _chosen(self, keys: list[str]) -> list[StudyEntry]:
        entries = [entry for key in dict.fromkeys(keys) if (entry := self.library.entry(key)) is not None]
        if not entries:
            raise HTTPException(404, "Choose one study or more.")
        return entries


def _trial(view: LiveView, number: int) -> Trial:
    if number not in view.by_number:
        raise HTTPException(404, "There is no such trial.")
    return view.by_number[number]


def _two(view: LiveView, numbers: list[int]) -> tuple[Trial, Trial]:
    if len(numbers) < 2:
        raise HTTPException(400, "Choose two trials to compare.")
    return _trial(view, numbers[0]), _trial(view, numbers[1])


async def _body(request: Request) -> bytes:
    data = b""
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_BODY:
            raise HTTPException(413, "What was sent is too long.")
    return data


async def _fields(request: Request) -> dict[str, list[str]]:
    text = (await _body(request)).decode("utf-8", errors="replace")
    return parse_qs(text, keep_blank_values=True, max_num_fields=1_000)


async def _form(request: Request) -> dict[str, str]:
    return {name: values[0] for name, values in (await _fields(request)).items()}


def _check_csrf(request: Request, form: Mapping[str, str]) -> None:
    session = session_of(request)
    if session is None or not session.csrf or form.get("csrf") != session.csrf:
        raise HTTPException(403, "The form is out of date: load the page again.")


async def _refused(request: Request, error: Exception) -> Response:
    """Bad input, or a store that cannot be read: one sentence, and no traceback."""
    words = hide_secrets(str(error))
    if request.url.path.startswith("/api/"):
        faults = [{name: value for name, value in vars(fault).items() if value} for fault in getattr(error, "faults", ())]
        return json_response({"error": type(error).__name__, "faults": faults}, status=400)
    return HTMLResponse(pages.error_page("That does not work", words), status_code=400)


async def _nonsense(request: Request, error: Exception) -> Response:
    """An address whose number is no number."""
    places = [".".join(map(str, each["loc"][1:])) for each in getattr(error, "errors", list)()]
    return await _missing(request, HTTPException(400, f"This address makes no sense: {', '.join(places)} must be a number."))


async def _gone(request: Request, error: Exception) -> Response:
    """A file of a launch that was there a moment ago, or may not be read."""
    return await _missing(request, HTTPException(404, f"A file cannot be read: {getattr(error, 'strerror', None) or 'it is gone'}."))


async def _missing(request: Request, error: Exception) -> Response:
    status, words = getattr(error, "status_code", 500), str(getattr(error, "detail", error))
    if request.url.path.startswith("/api/"):
        return json_response({"error": words}, status=status)
    return HTMLResponse(pages.error_page("Not found" if status == 404 else "That does not work", words), status_code=status)


__all__ = ["build_app", "listen", "make_server"]
