"""What tests ask of a refusal: its code, the option it is about, and facts such as a name; not its wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tapr.errors import CODES, TaprError


@contextmanager
def refused(
    code: str, *facts: str, option: str | None = None, kind: type[TaprError] = TaprError
) -> Iterator[pytest.ExceptionInfo[TaprError]]:
    """Check that the body is refused with this code, in one line that names the facts."""
    assert code in CODES
    with pytest.raises(kind) as caught:
        yield caught
    error, sentence = caught.value, str(caught.value)
    assert error.code == code, sentence
    assert "\n" not in sentence
    assert option is None or getattr(error, "option", None) == option
    assert all(fact in sentence for fact in facts), sentence
