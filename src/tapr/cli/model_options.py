"""Options of the command line, made from the fields of an option model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

import click
from annotated_types import Ge
from pydantic.fields import FieldInfo

from tapr.utils.option_model import OptionModel

Command = Callable[..., Any]


def model_options(
    model: type[OptionModel],
    names: Iterable[str],
    *,
    declared: Mapping[str, tuple[str, ...]],
    metavars: Mapping[str, str],
) -> Callable[[Command], Command]:
    """Add these options to a command. One that was not given is None or empty, so that the model knows which were.

    `declared` has the names of options that are not called like their field.
    """

    def add(command: Command) -> Command:
        for name in reversed(list(names)):
            command = _option(name, model.model_fields[name], declared.get(name), metavars.get(name))(command)
        return command

    return add


def _option(name: str, field: FieldInfo, declared: tuple[str, ...] | None, metavar: str | None) -> Command:
    flag = f"--{name.replace('_', '-')}"
    settings: dict[str, Any] = {"help": field.description, "default": None, "metavar": metavar}
    if field.default not in (None, (), {}) and not isinstance(field.default, bool):
        settings["show_default"] = str(field.default)
    kinds = [kind for kind in get_args(field.annotation) or (field.annotation,) if kind is not type(None)]
    extra = field.json_schema_extra
    choices = extra.get("choices") if isinstance(extra, dict) else None
    if choices or get_origin(field.annotation) is Literal or get_origin(kinds[0]) is Literal:
        settings["type"] = click.Choice(choices or get_args(kinds[0]) or kinds)  # type: ignore[arg-type]
    elif kinds == [bool] and field.default is False:
        settings["is_flag"] = True
    elif kinds == [bool]:
        declared = declared or (f"{flag}/--no-{flag[2:]}",)
    elif kinds == [int]:
        least: Any = next(one.ge for one in field.metadata if isinstance(one, Ge))
        settings["type"] = click.IntRange(min=least)
    elif kinds == [float]:
        settings["type"] = float
    elif get_origin(field.annotation) is tuple or isinstance(field.default, Mapping):
        settings |= {"multiple": True, "default": ()}
        if get_origin(kinds[0]) is tuple:
            settings["nargs"] = len(get_args(kinds[0]))
    return click.option(*(declared or (flag,)), **settings)
