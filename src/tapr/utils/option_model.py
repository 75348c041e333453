"""The base of SearchOptions and IndexOptions: values are checked once, and refused in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self, get_args

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from tapr.errors import BadInput, BadOption
from tapr.utils.arguments import shown_value


def option(
    default: Any, description: str, *, label: str | None = None, choices: Iterable[str] = (), **more: Any
) -> Any:
    """Return a field with its default and its text for people; `label` is its name on the page, `choices` are the
    values that there are when tapr starts.
    """
    extra: dict[str, Any] = {"label": label, "choices": list(choices)}
    named = {name: value for name, value in extra.items() if value}
    return Field(default, description=description, json_schema_extra=named or None, **more)


class OptionModel(BaseModel):
    """Options that are checked when they are made, and do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Check what was given; None is the default of each option."""
        try:
            return cls(**{name: _plain(value) for name, value in given.items() if value is not None})
        except ValidationError as error:
            raise refusal(error.errors(), cls) from None


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's."""
    return value.item() if hasattr(value, "item") and getattr(value, "shape", None) == () else value


def refusal(errors: Sequence[Any], model: type[BaseModel]) -> BadInput:
    """Return the first of pydantic's errors as one sentence; `model` has the range of its fields."""
    first = errors[0]
    path = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    name, value, kind = ".".join(path) or "the request", first.get("input"), first["type"]
    if kind == "extra_forbidden":
        return BadOption(f"there is no option {name!r}: leave it out", name)
    if kind == "missing":
        return BadOption(f"{name} is missing: give it", name, "missing_option")
    if kind == "string_too_long":
        most = first["ctx"]["max_length"]
        return BadOption(f"the {name} has {len(value):,} characters, more than the {most:,} allowed", name)
    nouns = {"string": "text", "bool": "true or false", "int": "a whole number"}
    wanted = nouns.get(kind.partition("_")[0])
    if kind == "literal_error":
        wanted = f"one of {first['ctx']['expected']}".replace("'", "")
    elif kind.startswith(("int", "float", "finite", "greater", "less")):
        wanted = _range(model.model_fields.get(path[0]) if path else None, wanted or "a number")
    return BadOption(f"{name} must be {wanted or str(first['msg']).lower()}, not {shown_value(value)}", name)


def _range(field: FieldInfo | None, noun: str) -> str:
    bounds = {type(bound): bound for bound in (field.metadata if field else ())}
    if field is not None and int in (field.annotation, *get_args(field.annotation)):
        noun = "a whole number"
    if Gt in bounds and Le in bounds:
        return f"{noun} above {bounds[Gt].gt:g} and up to {bounds[Le].le:,.10g}"
    if Ge in bounds and Le in bounds:
        most = bounds[Le].le
        return f"{noun} from {bounds[Ge].ge:g} to {f'{most:,}' if isinstance(most, int) else f'{most:g}'}"
    return f"{noun} of {bounds[Ge].ge:g} or more" if Ge in bounds else noun
