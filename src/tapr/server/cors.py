"""Pages of other sites that may ask, because the server was started so (--origin). Cookies never count for them."""

from __future__ import annotations

from starlette.responses import Response

from tapr.server.logs import REQUEST_HEADER

_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": f"Authorization, Content-Type, Idempotency-Key, If-None-Match, {REQUEST_HEADER}",
    "Access-Control-Max-Age": "600",
}


def allowed(origin: str) -> dict[str, str]:
    """Headers of an answer to such a page."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": f"ETag, Retry-After, {REQUEST_HEADER}",
        "Cross-Origin-Resource-Policy": "cross-origin",
        "Vary": "Origin",
    }


def preflight() -> Response:
    """A browser asks first whether it may ask; it sends no token with that."""
    return Response(status_code=204, headers=_PREFLIGHT)
