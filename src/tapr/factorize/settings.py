"""Which language model server to ask, and how: from the environment (TAPR_LLM_...) and what overrides it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator

from tapr.errors import BadInput
from tapr.utils.safe_text import remember_secret

PREFIX = "TAPR_LLM_"


class LLMSettings(BaseModel):
    """Every field may be set as TAPR_LLM_<FIELD>; the key is shown nowhere."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    base_url: str = Field(pattern=r"^https?://[^\s/]+\S*$")  # usually ends in /v1
    model: str = Field(min_length=1)
    api_key: SecretStr = SecretStr("")

    send_image: bool = True  # False for a model that sees no pictures: it then reads the edit alone
    longest_side: int = Field(default=768, ge=32, le=1024)  # pixels; a reference is opened no larger
    image_bytes: int = Field(default=1_500_000, ge=4096)  # of the JPEG that is sent

    tries: int = Field(default=3, ge=1, le=10)  # answers asked for until one is a valid spec
    max_tokens: int = Field(default=800, ge=16)  # of one answer
    answer_bytes: int = Field(default=4_000_000, ge=1024, le=100_000_000)  # of one response; the rest is not read
    timeout: float = Field(default=120.0, gt=0)  # seconds for one whole request
    retries: int = Field(default=5, ge=0, le=50)  # after a timeout, a lost connection, 429 or 5xx
    backoff: float = Field(default=0.5, ge=0)  # seconds before the first of them; doubles each time
    max_wait: float = Field(default=60.0, ge=0)  # the longest single wait, also when the server asks for more
    concurrency: int = Field(default=8, ge=1, le=1024)  # requests at a time in a batch

    price_in: float | None = Field(default=None, ge=0)  # of a million tokens read
    price_out: float | None = Field(default=None, ge=0)  # of a million tokens written

    @field_validator("api_key")
    @classmethod
    def _fits_a_header(cls, key: SecretStr) -> SecretStr:
        text = key.get_secret_value()
        if not (text.isascii() and (text.isprintable() or not text)):
            raise ValueError("it holds characters that no key has")
        return key

    @classmethod
    def load(cls, overrides: Mapping[str, Any] | None = None, environ: Mapping[str, str] | None = None) -> LLMSettings:
        """Return the environment, with what is given (and is not None) laid over it."""
        environ = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for name in cls.model_fields:
            text = environ.get(PREFIX + name.upper(), "").strip()
            if text:
                values[name] = text
        if "api_key" not in values:
            values["api_key"] = environ.get("OPENAI_API_KEY", "").strip()
        values.update({name: value for name, value in (overrides or {}).items() if value is not None})
        for name, example in (("base_url", "http://127.0.0.1:8000/v1"), ("model", "Qwen/Qwen3.6-27B")):
            if not values.get(name):
                what = f"the openai factorizer needs a {name}: set {PREFIX}{name.upper()}, such as {example}"
                raise BadInput(what, code="bad_setting")
        return cls.checked(values)

    @classmethod
    def checked(cls, values: Mapping[str, Any]) -> LLMSettings:
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            name = str(first["loc"][0]) if first["loc"] else "settings"
            what = f"{PREFIX}{name.upper()} cannot be used: {first['msg'].lower()}"
            raise BadInput(what, code="bad_setting") from None

    def model_post_init(self, context: Any) -> None:
        remember_secret(self.api_key.get_secret_value())
        remember_secret(urlsplit(self.base_url).password or "")

    @property
    def place(self) -> str:
        """Return the server's address for messages, without a password that may stand in it."""
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
