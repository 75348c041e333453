"""How a factorizer fails: one query that got no answer, or a server that no query will get one from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tapr.errors import BadInput, TaprError


class NoAnswer(TaprError):
    """A query that got no answer, of a spec or another record; the next one may."""

    code = "factorizer_unavailable"
    details: Mapping[str, Any] = {}  # what was used up on the way


class ServerUnreachable(NoAnswer):
    """An address where nobody answers: a batch stops here, and resumes later."""


class BadAnswer(BadInput):
    """A language model's answer that breaks its form; the model hears why."""

    code = "bad_answer"


class BadRecords(BadInput):
    """A record file, or a record in it, that cannot be read."""

    code = "bad_records"


class ServerRefused(BadInput):
    """Wrong settings (key, model, address, picture), with which every query would fail in the same way."""

    code = "factorizer_unavailable"
