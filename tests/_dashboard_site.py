"""A dashboard that is being served, asked over HTTP."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from _dashboard_studies import TOKEN


@dataclass
class Site:
    """A dashboard that is being served."""

    url: str
    library: Any

    @property
    def key(self) -> str:
        return str(self.library.entries()[0].key)

    def ask(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, str, dict[str, str]]:
        address = self.url + path.replace("KEY", self.key)
        request = urllib.request.Request(address, data=data, headers={name.replace("_", "-"): value for name, value in headers.items()})
        try:
            with urllib.request.build_opener(_Stay()).open(request, timeout=20) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), dict(error.headers)

    def document(self, path: str) -> Any:
        status, text, _ = self.ask(path)
        assert status == 200, text
        return json.loads(text)


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def signed_in(site: Site) -> str:
    status, _, headers = site.ask("/login", urlencode({"token": TOKEN}).encode())
    assert status == 303
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert TOKEN not in cookie
    return cookie.split(";")[0]
