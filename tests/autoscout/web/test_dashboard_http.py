"""Pages and documents of the dashboard over HTTP: what they say, and what they refuse."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import ssl
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from _dashboard_site import Site, _Stay, signed_in
from _dashboard_studies import HOSTILE, TOKEN, make_folder, make_study

sys.path.insert(0, str(Path(__file__).parents[3]))

pytest.importorskip("fastapi", reason="the extra web is not installed")
pytest.importorskip("uvicorn", reason="the extra web is not installed")

from benchmarks._browser import dashboard

from autoscout.core.errors import ConfigError
from autoscout.study.folder import Folder
from autoscout.web.guard import read_token
from autoscout.web.library import Library
from autoscout.web.server import build_app, listen, make_server


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = make_folder(tmp_path_factory.mktemp("results"), hostile=HOSTILE)
    with dashboard(str(root), token=TOKEN) as (url, library):
        yield Site(url, library)


PAGES = [
    "/",
    "/studies/KEY",
    "/studies/KEY/trials",
    "/studies/KEY/trials?status=failed&sort=output_throughput&down=0&text=memory",
    "/studies/KEY/trials/7",
    "/studies/KEY/diff?trial=0&trial=5",
    "/studies/KEY/knobs",
    "/studies/KEY/knobs?knob=batch&other=threads",
    "/compare?study=KEY",
    "/login",
    *(f"/studies/KEY/parts/{name}" for name in ("comparison", "predicted", "why", "distribution", "slices", "parallel", "trials")),
]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_with_a_strict_policy_and_nothing_hostile_or_secret_in_it(site: Site, path: str) -> None:
    status, text, headers = site.ask(path)
    assert status == 200, text
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert headers["cache-control"] == "no-store"
    assert "<img" not in text
    assert "owned'</script>" not in re.sub(r'<script[^>]*type="application/json".*?</script>', "", text, flags=re.DOTALL)
    assert not re.search(r"https?://(?!www\.w3\.org)", text), "nothing comes from elsewhere"
    for secret in ("hf_abcdefghijklmnopqrst", "sk-abcdefghijklmnop1234", "abcdefgh12345678", TOKEN):
        assert secret not in text
    assert "\x1b" not in text


def test_metrics_say_what_they_are(site: Site) -> None:
    _, text, _ = site.ask("/studies/KEY/trials/3")
    assert 'title="from sending a request to its first token: 95th percentile"' in text


def test_documents_say_what_pages_say(site: Site) -> None:
    (row,) = site.document("/api/studies")["studies"]
    assert (row["name"], row["trials"], row["running"]) == ("engine", 40, 0)
    study = site.document("/api/studies/KEY")
    assert study["result"]["verdict"]
    assert len(study["result"]["points"]) == 40
    assert study["about"]["load"] == "128 prompts by one client"
    assert study["predicted"]["rows"]
    failed = site.document("/api/studies/KEY/trials?status=failed")
    assert [trial["number"] for trial in failed["trials"]] == [29, 18, 7]
    best = site.document("/api/studies/KEY/trials?sort=output_throughput")["trials"]
    assert best[0]["metrics"]["output_throughput"] == max(t["metrics"].get("output_throughput", 0) for t in best)
    trial = site.document("/api/studies/KEY/trials/7")
    assert (trial["status"], trial["files"][0]) == ("oom_start", "stderr.log")
    assert site.document("/api/studies/KEY/knobs/threads")["values"]
    diff = site.document("/api/studies/KEY/diff?trial=0&trial=3")
    assert {row["knob"] for row in diff["knobs"]} == {"threads", "batch", "flash"}
    assert diff["metrics"]["output_throughput"]["mark"] == "better"
    assert site.document("/api/compare?study=KEY")["studies"][0]["curve"]
    assert site.document("/api/openapi.json")["paths"]["/api/studies"]


def test_the_log_of_a_failed_trial_is_one_click_away(site: Site) -> None:
    _, page, _ = site.ask("/studies/KEY")
    assert f'href="/studies/{site.key}/trials/7"' in page
    _, page, _ = site.ask("/studies/KEY/trials/7")
    assert "engine --threads 8" in page
    assert "stderr.log" in page
    status, text, headers = site.ask("/studies/KEY/trials/7/files/stderr.log")
    assert (status, text.splitlines()[1]) == (200, "Authorization: Bearer ***")
    assert headers["content-type"].startswith("text/plain")
    assert headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/studies/nobody", 404),
        ("/studies/KEY/trials/999", 404),
        ("/studies/KEY/trials/7/files/..%2f..%2fstore.db", 404),
        ("/studies/KEY/trials/7/files/env.sh", 404),
        ("/studies/KEY/trials?status=tired", 400),
        ("/studies/KEY/diff?trial=1", 400),
        ("/studies/KEY/parts/secret", 404),
        ("/static/../server.py", 404),
        ("/compare", 404),
        ("/nothing/here", 404),
        ("/api/nothing", 404),
        ("/studies/KEY/trials/seven", 400),
        ("/studies/KEY/trials?page=first", 400),
        ("/api/studies/KEY/trials/seven", 400),
        ("/api/studies/nobody", 404),
        ("/api/events?study=nobody", 404),
    ],
)
def test_what_is_not_there(site: Site, path: str, status: int) -> None:
    found, text, headers = site.ask(path)
    assert found == status
    assert "Traceback" not in text
    assert ("json" if path.startswith("/api/") else "html") in headers["content-type"], "for whoever asked"


def test_a_file_that_vanishes_is_said(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(Folder, "launch_files", gone)
    status, text, _ = site.ask("/studies/KEY/trials/7")
    assert (status, "cannot be read" in text) == (404, True)


def test_nothing_changes_without_the_token(site: Site) -> None:
    form = urlencode({"kind": "stop", "csrf": "guess"}).encode()
    assert site.ask("/studies/KEY/actions", form)[0] == 401
    assert site.ask("/api/studies/KEY/actions", b'{"kind": "stop"}')[0] == 401
    assert site.ask("/api/studies/KEY/actions", b'{"kind": "stop"}', Authorization="Bearer wrong")[0] == 401
    name = signed_in(site).partition("=")[0]
    assert site.ask("/api/studies/KEY/actions", b'{"kind": "stop"}', Cookie=f"{name}=guess")[0] == 401
    assert site.document("/api/studies/KEY")["actions"] == []


def test_signing_in_to_one_dashboard_does_not_sign_out_of_another(site: Site, tmp_path: Path) -> None:
    with dashboard(site.library.target, token=TOKEN) as (url, library):
        second = Site(url, library)
        first = signed_in(site)
        jar = f"{first}; {signed_in(second)}"  # a browser sends the cookies of all ports of a machine
        assert jar.split("=")[0] not in jar.split("; ")[1], "cookies of the same name replace each other"
        for each in (site, second):
            assert "Sign out" in each.ask("/studies/KEY", Cookie=jar)[1]


def test_a_session_alone_is_not_enough_for_a_form(site: Site) -> None:
    cookie = signed_in(site)
    _, page, _ = site.ask("/studies/KEY", Cookie=cookie)
    csrf = re.search(r'name="csrf" value="([^"]+)"', page)
    assert csrf
    form = urlencode({"kind": "stop", "csrf": csrf[1]}).encode()
    assert site.ask("/studies/KEY/actions", urlencode({"kind": "stop"}).encode(), Cookie=cookie)[0] == 403
    assert site.ask("/studies/KEY/actions", form, Cookie=cookie, Origin="http://evil.example")[0] == 403
    assert site.ask("/studies/KEY/actions", form, Cookie=cookie, Sec_Fetch_Site="cross-site")[0] == 403
    assert site.ask("/api/studies/KEY/actions", b'{"kind": "stop"}', Cookie=cookie)[0] == 403, "a cookie is not a bearer"
    assert site.document("/api/studies/KEY")["actions"] == []
    assert site.ask("/logout", urlencode({"csrf": csrf[1]}).encode(), Cookie=cookie)[0] == 303
    assert site.ask("/studies/KEY/actions", form, Cookie=cookie)[0] == 401, "signed out"


def test_a_wrong_token_and_a_long_body_are_refused(site: Site) -> None:
    assert site.ask("/login", urlencode({"token": "x"}).encode())[0] == 403
    assert site.ask("/login", b"token=" + b"x" * 100_000)[0] == 413


def test_a_name_that_leads_here_by_a_trick_is_refused(site: Site) -> None:
    assert site.ask("/", Host="evil.example:80")[0] == 421
    assert site.ask("/", Host="localhost:80")[0] == 200


def test_programs_ask_with_the_token_as_a_bearer(tmp_path: Path) -> None:
    make_study(tmp_path, 12).close()
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    with dashboard(str(tmp_path / "store.db"), token=TOKEN) as (url, library):
        site = Site(url, library)
        wrong = [
            {"kind": "dance"},
            {"kind": "budget"},
            {"kind": "budget", "trials": "-3"},
            {"kind": "budget", "time": "2h"},
            {"kind": "try"},
        ]
        wrong += [{"kind": "try", "settings": "treads=8"}, {"kind": "try", "settings": "threads"}, {"kind": "invalid", "trial": 99}]
        for fields in wrong:
            status, text, _ = site.ask("/api/studies/KEY/actions", json.dumps(fields).encode(), **bearer)
            assert status == 400, fields
            assert json.loads(text)["faults"], fields
        assert "threads" in text or "trial" in text
        for body in (b"[" * 60_000, b'{"a":' * 10_000):
            assert site.ask("/api/studies/KEY/actions", body, **bearer)[0] == 400
        for fields in (
            {"kind": "budget", "trials": 10},
            {"kind": "try", "settings": "threads=8, flash=on"},
            {"kind": "invalid", "trial": 3},
        ):
            assert site.ask("/api/studies/KEY/actions", json.dumps(fields).encode(), **bearer)[0] == 201, fields
        found = site.document("/api/studies/KEY")
    kinds = [action["kind"] for action in found["actions"]]
    assert kinds == ["budget", "try", "invalid"]
    assert found["actions"][0]["budget"] == {"trials": 50}
    assert found["actions"][1]["config"]["threads"] == 8
    assert found["budget"]["trials"] == 50
    assert found["invalid"] == {"3": ""}


def test_other_addresses_need_a_token_for_everything(tmp_path: Path) -> None:
    make_study(tmp_path, 3).close()
    library = Library(str(tmp_path / "store.db"))
    with pytest.raises(ConfigError, match="needs a token"):
        build_app(library, host="0.0.0.0")
    guard = build_app(library, host="0.0.0.0", token=TOKEN)
    assert guard.private
    refused = guard._refusal({"host": "any.example:1"}, "/", "GET", None)
    assert refused is not None
    assert refused[0] == 401
    sent: list[dict[str, Any]] = []

    async def keep(message: Any) -> None:
        sent.append(message)

    for path, status in (("/", 303), ("/api/studies", 401)):
        sent.clear()
        asyncio.run(guard({"type": "http", "path": path, "method": "GET", "headers": []}, None, keep))  # type: ignore[arg-type]
        assert sent[0]["status"] == status
        assert (dict(sent[0]["headers"]).get(b"location") == b"/login") == (status == 303), "a browser is shown where to sign in"
    library.close()


def test_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    made = read_token(file)
    assert len(made) >= 16
    assert file.stat().st_mode & 0o077 == 0
    assert read_token(file) == made
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_token(file)
    monkeypatch.setenv("AUTOSCOUT_TOKEN", "short")
    with pytest.raises(ConfigError, match="at least 16"):
        read_token(None)
    monkeypatch.delenv("AUTOSCOUT_TOKEN")
    assert read_token(None) == ""


def test_a_place_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        Library(str(tmp_path / "nothing"))


def test_prometheus_reads_how_studies_stand(site: Site) -> None:
    status, text, headers = site.ask("/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    row = json.loads(site.ask("/api/studies")[1])["studies"][0]
    labels = f'study="{row["name"]}",system="{row["system"]}"'
    assert float(samples[f"autoscout_study_trials_total{{{labels}}}"]) == row["trials"]
    assert sum(float(value) for name, value in samples.items() if name.startswith(f"autoscout_study_state{{{labels}")) == 1
    for line in text.splitlines():
        assert re.fullmatch(
            r'# (HELP|TYPE) autoscout_study_\w+ .+|autoscout_study_\w+\{(\w+="(\\.|[^"\\])*",?)+\} (NaN|[-+0-9.e]+)', line
        ), line


ODD_HEADERS = [
    ("Origin", "http://[::1"),
    ("Origin", "http://a]b"),
    ("Content-Length", "x"),
    ("Content-Length", "-1"),
    ("Content-Length", "1e3"),
    ("Content-Length", "9" * 5000),
    ("Host", "[::1"),
    ("Host", "a]b:x"),
    ("Cookie", "=;=;;\xff"),
    ("Authorization", "Bearer \xff\xfe"),
    ("Accept-Encoding", "\xff"),
    ("Sec-Fetch-Site", "\xff"),
]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(("name", "value"), ODD_HEADERS, ids=lambda text: str(text)[:12])
def test_odd_headers_are_refused_and_break_nothing(
    site: Site, name: str, value: str, method: str, capfd: pytest.CaptureFixture[str]
) -> None:
    for path in ("/", "/api/studies", f"/studies/{site.key}/actions" if method == "POST" else "/compare"):
        status = raw_status(site, f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{name}: {value}\r\nConnection: close\r\n\r\n")
        assert status in (200, 303, 400, 401, 403, 404, 405, 413, 421, 422, 431), (path, status)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("number", ["9" * 400, "-" + "9" * 400, "1e400", "nan", "0x10", "\u0660", "1_0", "%00", "2" * 20])
def test_odd_numbers_are_refused(site: Site, number: str, capfd: pytest.CaptureFixture[str]) -> None:
    from urllib.parse import quote

    odd = quote(number)
    paths = [
        f"/studies/KEY/trials/{odd}",
        f"/studies/KEY/trials?page={odd}",
        f"/studies/KEY/diff?trial={odd}&trial=1",
        f"/api/studies/KEY/trials/{odd}",
        f"/api/studies/KEY/trials?page={odd}",
        f"/studies/KEY/trials/{odd}/files/env.txt",
    ]
    for path in paths:
        status, text, _ = site.ask(path)
        assert status in (200, 400, 404), (path, status, text[:200])
    assert "Traceback" not in capfd.readouterr().err


def raw_status(site: Site, request: str) -> int:
    host, _, port = site.url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as connection:
        connection.sendall(request.encode("latin-1"))
        return int((connection.recv(4096).split() or [b"", b"0"])[1])


def test_a_dashboard_with_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    library = Library(str(make_folder(tmp_path / "results")))
    server = make_server(library, token=TOKEN, certificate=certificate, key=key)
    socket_ = listen("127.0.0.1", 0)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [socket_]})
    thread.start()
    try:
        socket_address = socket_.getsockname()
        address = f"https://localhost:{socket_address[1]}"
        trusted = ssl.create_default_context(cafile=str(certificate))
        trusted.check_hostname = False
        data = urlencode({"token": TOKEN}).encode()
        opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=trusted), _Stay())
        with pytest.raises(urllib.error.HTTPError) as answer:
            opener.open(f"{address}/login", data=data, timeout=20)
        assert answer.value.code == 303
        assert "secure" in answer.value.headers["set-cookie"].lower()
        answer.value.close()
        with socket.create_connection(socket_address, timeout=20) as plain, pytest.raises(ssl.SSLError):
            ssl.create_default_context().wrap_socket(plain, server_hostname="localhost")  # does not trust it
    finally:
        server.should_exit = True
        thread.join(20)
        library.close()


def test_certificates_that_cannot_be_used(tmp_path: Path) -> None:
    library = Library(str(make_folder(tmp_path / "results")))
    (tmp_path / "cert.pem").write_text("no certificate")
    for certificate, key, words in [
        (tmp_path / "cert.pem", None, "needs certificate and key"),
        (tmp_path / "cert.pem", tmp_path / "missing.pem", "cannot be read"),
        (tmp_path / "cert.pem", tmp_path / "cert.pem", "does not go with the key"),
    ]:
        with pytest.raises(ConfigError, match=words):
            make_server(library, certificate=certificate, key=key)
    library.close()
