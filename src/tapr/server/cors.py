"""CORS: pages of other sites that may use the API (--origin). Cookies never count for them."""

from __future__ import annotations

from starlette.responses import Response

from tapr.server.logs import REQUEST_HEADER

_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, DELETE",
    "Access-Control-Allow-Headers": f"Authorization, Content-Type, Idempotency-Key, If-None-Match, {REQUEST_HEADER}",
    "Access-Control-Max-Age": "600",
}


def allowed(origin: str) -> dict[str, str]:
    """Response headers for such a page."""
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": f"ETag, Retry-After, {REQUEST_HEADER}",
        "Cross-Origin-Resource-Policy": "cross-origin",
        "Vary": "Origin",
    }


def preflight() -> Response:
    """The answer to a browser's preflight request, which carries no token."""
    return Response(status_code=204, headers=_PREFLIGHT)
