"""httpx, where it is installed, and what it is given for a call."""

from __future__ import annotations

from typing import Any

from tapr.client.calls import Call
from tapr.errors import BadInput
from tapr.utils.extras import install_hint

REQUEST_ID = "X-Request-Id"


def httpx_module() -> Any:
    try:
        import httpx
    except ModuleNotFoundError:
        raise BadInput(f"the client needs httpx: {install_hint('client')}") from None
    return httpx


def arguments(call: Call[Any]) -> dict[str, Any]:
    out: dict[str, Any] = {"params": dict(call.params), "headers": dict(call.headers)}
    if call.body is not None:
        out["content"] = call.body
    if call.form is not None:
        # also without a file as multipart, which is how the server reads forms of any size
        files = [(name, ("picture", data)) for name, data in (call.files or {}).items()]
        out["files"] = files + [(name, (None, text.encode())) for name, text in call.form.items()]
    return out
