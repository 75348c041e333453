from __future__ import annotations

import pytest

from tapr.factorize.settings import LLMSettings
from tests.refusals import refused

ENVIRON = {"TAPR_LLM_BASE_URL": "http://127.0.0.1:1/v1", "TAPR_LLM_MODEL": "m"}


def test_the_environment_sets_every_field_and_overrides_go_before_it() -> None:
    environ = {**ENVIRON, "TAPR_LLM_SEND_IMAGE": "false", "TAPR_LLM_TIMEOUT": "7.5", "TAPR_LLM_PRICE_IN": "0.3"}
    settings = LLMSettings.load({"model": "other", "base_url": None}, environ)
    assert (settings.base_url, settings.model) == ("http://127.0.0.1:1/v1", "other")
    assert (settings.send_image, settings.timeout, settings.price_in) == (False, 7.5, 0.3)


def test_the_key_falls_back_to_the_usual_name_and_is_never_shown() -> None:
    fallback = LLMSettings.load({}, {**ENVIRON, "OPENAI_API_KEY": "usual"})
    own = LLMSettings.load({}, {**ENVIRON, "OPENAI_API_KEY": "usual", "TAPR_LLM_API_KEY": "own"})
    assert fallback.api_key.get_secret_value() == "usual"
    assert own.api_key.get_secret_value() == "own"
    assert "own" not in repr(own) + str(own) + own.model_dump_json()


@pytest.mark.parametrize(
    ("environ", "variable"),
    [
        ({}, "TAPR_LLM_BASE_URL"),
        ({"TAPR_LLM_BASE_URL": "http://x/v1"}, "TAPR_LLM_MODEL"),
        ({**ENVIRON, "TAPR_LLM_BASE_URL": "localhost:8000"}, "TAPR_LLM_BASE_URL"),
        ({**ENVIRON, "TAPR_LLM_TIMEOUT": "soon"}, "TAPR_LLM_TIMEOUT"),
        ({**ENVIRON, "TAPR_LLM_CONCURRENCY": "0"}, "TAPR_LLM_CONCURRENCY"),
    ],
)
def test_what_is_missing_or_wrong_is_named(environ: dict[str, str], variable: str) -> None:
    with refused("bad_setting", variable):
        LLMSettings.load({}, environ)
