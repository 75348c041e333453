"""What a server refuses, as exceptions: one per kind of refusal. Their text is the server's own sentence."""

from __future__ import annotations

import json

from tapr.errors import TaprError


class ApiError(TaprError):
    """Any answer that is not the one asked for."""

    def __init__(
        self, detail: str, status: int = 0, request_id: str = "", code: str | None = None, option: str = ""
    ) -> None:
        super().__init__(detail, code=code)
        self.detail, self.status, self.request_id, self.option = detail, status, request_id, option


class BadRequest(ApiError):
    """400, 422: it cannot be done as asked."""


class Unauthorized(ApiError):
    """401: no token (unauthorized), or one that the server does not know (unknown_token)."""


class Forbidden(ApiError):
    """403: the token does not allow it, or writing is off."""


class NotFound(ApiError):
    """404: no such picture, reference or gallery."""


class Conflict(ApiError):
    """409: the idempotency key came with another request before."""


class TooLarge(ApiError):
    """413"""


class NotAPicture(ApiError):
    """415"""


class TooOften(ApiError):
    """429, after all attempts."""


class Unavailable(ApiError):
    """503, after all attempts: an index run is writing, or the gallery cannot be used now."""


class Unreachable(ApiError):
    """No answer came, after all attempts."""

    code = "unreachable"


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest, 422: BadRequest, 401: Unauthorized, 403: Forbidden, 404: NotFound, 409: Conflict, 413: TooLarge,
    415: NotAPicture, 429: TooOften, 503: Unavailable,
}  # fmt: skip


def error_of(status: int, body: bytes, request_id: str) -> ApiError:
    try:
        told = json.loads(body)
        detail, code, option = str(told["detail"]), told.get("code"), told.get("option", "")
    except (ValueError, KeyError, TypeError, AttributeError):  # a proxy's page, for one
        detail, code, option = f"the server answered {status}", None, ""
    return _BY_STATUS.get(status, ApiError)(detail, status, request_id, code, option)
