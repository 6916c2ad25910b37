"""What handlers of pages and documents share."""

from __future__ import annotations

import json
from typing import Any

from fastapi import Request, Response

from autoscout.core.secrecy import without_secrets
from autoscout.web.api import finite
from autoscout.web.guard import Session


def session_of(request: Request) -> Session | None:
    """The session of whoever asks, where somebody signed in."""
    session: Session | None = request.state.session
    return session


def json_response(data: Any, status: int = 200) -> Response:
    """Plain data as JSON, without secrets; what is not finite becomes null."""
    return Response(
        json.dumps(without_secrets(finite(data)), default=str, allow_nan=False), status_code=status, media_type="application/json"
    )


__all__ = ["json_response", "session_of"]
