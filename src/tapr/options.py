"""SearchOptions: one question, whoever asks it. Every option has its type, range, default and description here, once.

The library, the command line, the HTTP API, its client, the page and the evaluation take their options from this file:
to add one, add a field, and use it where the search is done. docs/extending.md has an example.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Annotated, Any, Literal, Self, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PlainValidator,
    create_model,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue, WithJsonSchema

from tapr.errors import BadOption
from tapr.query.crop import checked_box
from tapr.query.scoring import DEFAULT_SCORING, ReferenceFeatures, Rule, Scoring
from tapr.query.spec import DEFAULT_WEIGHTS, MAX_EDIT_CHARACTERS, EditSpec, Weights
from tapr.score.compile import TAU, TAU_MAX, TAU_MIN
from tapr.types import Box
from tapr.utils.arguments import shown_value
from tapr.utils.option_model import OptionModel, option

MAX_REFERENCES = 3
MAX_K = 10_000  # hits of one answer; further ones are the next page
MAX_OFFSET = 1_000_000_000
MAX_FEEDBACK = 4  # pictures marked "more like", and as many "not like": each adds the probes of a reference
TAPR = "tapr"  # the method that the options tune; others read some of them
Budget = int | Literal["exact"]  # pictures to read in full, at most; or as many as the proof needs


class _As:
    """The JSON form of a class of ours, for schemas."""

    def __init__(self, form: type[BaseModel]) -> None:
        self._form = form

    def __get_pydantic_json_schema__(self, _: Any, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        return handler(self._form.__pydantic_core_schema__)


def _budget(value: object) -> Budget:
    if value == "exact":
        return "exact"
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    try:
        number = 0 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = 0
    if number < 1:
        what = f"prefilter takes a number of pictures of 1 or more, or 'exact', not {shown_value(value)}"
        raise BadOption(what, "prefilter")
    return number


def _spec(value: object) -> EditSpec:
    if isinstance(value, EditSpec):
        return value
    if isinstance(value, Mapping):
        return EditSpec.from_dict({name: part for name, part in value.items() if part is not None})
    hint = "a sentence is the edit, and EditSpec.from_file reads a file"
    raise BadOption(f"spec must be an EditSpec or a mapping with a target, not {shown_value(value)}: {hint}", "spec")


def _sort(text: str) -> str:
    """Return `taken`, `taken asc` or `taken desc` in one form."""
    name, _, direction = text.strip().rpartition(" ")
    if direction.lower() not in ("asc", "desc"):
        name, direction = text.strip(), "asc"
    if not name.strip():
        raise BadOption("sort must be a column, such as taken, or 'taken desc' for the latest first", "sort")
    return f"{name.strip()} {direction.lower()}"


def _pictures(name: str, most: int, refused: str) -> PlainValidator:
    """A list of up to `most` pictures; `refused` says what a longer one of {} is too much of."""

    def checked(value: object) -> tuple[Any, ...]:
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise BadOption(f"{name} must be a list, not {shown_value(value)}", name)
        if len(value) > most:
            raise BadOption(refused.format(len(value)), name)
        return tuple(value)

    return PlainValidator(checked)


_IN_JSON: dict[Any, Any] = {
    tuple[str, ...]: (list[str], []),
    tuple[tuple[str, float], ...]: (dict[str, float] | None, None),
}
_OF_A_SPEC = {
    "target": "One sentence that describes the whole picture wanted.",
    "add": "Short phrases for what the picture must show.",
    "preserve": "Short phrases for what it keeps of the reference.",
    "remove": "Short phrases for what it must not show.",
    "atom_weights": "Weight of an atom within its factor, 1 if unsaid.",
    "continuity": "How much of the reference stays, 0 to 1; null: the rule decides.",
    "readings": "Further sentences beside Target, and their weights; Target's own is 1.",
    "kind": "The kind of edit, which decides how much of the reference stays.",
}
_CLOSED = ConfigDict(extra="forbid")
WeightsForm = create_model(
    "WeightsForm",
    __config__=_CLOSED,
    __doc__="theta of the four factors; only their ratios matter. 0 switches a factor off.",
    **{name: (float, default) for name, default in DEFAULT_WEIGHTS.as_dict().items()},
)  # type: ignore[call-overload]
WeightsValue = Annotated[Weights, PlainValidator(Weights.parse), _As(WeightsForm)]


def _spec_form() -> type[BaseModel]:
    """The JSON form of an EditSpec: what is a tuple there is a list or an object here, and what may lack is null."""
    hints, form = get_type_hints(EditSpec), {}
    for one in dataclass_fields(EditSpec):
        type_, default = _IN_JSON.get(hints[one.name], (hints[one.name], ... if one.name == "target" else None))
        type_ = WeightsValue | None if one.name == "weights" else type_
        form[one.name] = (type_, Field(default, description=_OF_A_SPEC.get(one.name)))
    return create_model("EditSpecForm", __config__=_CLOSED, __doc__="One composed query in words.", **form)  # type: ignore


SpecForm = _spec_form()
SpecValue = Annotated[EditSpec, PlainValidator(_spec), _As(SpecForm)]
_FOUR_NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 4, "maxItems": 4}
CropValue = Annotated[Box, PlainValidator(checked_box), WithJsonSchema(_FOUR_NUMBERS)]
_COUNT = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "enum": ["exact"]}]}


Saved = Literal["as asked", "as answered", "apart", "refused"]
# Searches that do not read every option: the option that asks for each, and what it is.
_SEARCHES = {
    "words": ("text", "text is a search by words alone"),
    "picture": ("like", "like is a search by a picture alone"),
    "edit": ("edit", "give an edit or a spec, not both"),
    "compared": ("method", "it goes with the method tapr only"),
    "paper": ("score", "the paper's score does not read it"),
}
NO_REFERENCE = "no reference"  # a search by a spec alone


@dataclass(frozen=True)
class Traits:
    """Everything about an option beside its type: all lists of options are made from these."""

    not_in: tuple[str, ...] = ()  # searches that do not read it, by their names in _SEARCHES, or NO_REFERENCE
    tunes: bool = False  # changes scores: a compared method names those that it reads
    in_eval: bool = False  # an option of tapr eval too
    saved: Saved = "as asked"  # what a saved search keeps; apart: in a field of its own
    flags: tuple[str, ...] | None = None  # on the command line; None: --name; (): the command has its own words
    metavar: str | None = None  # on the command line


def _option(default: Any, description: str, traits: Traits | None = None, **more: Any) -> Any:
    """Declare an option with its traits."""
    field = option(default, description, **more)
    field.metadata.append(traits or Traits())
    return field


class RankOptions(OptionModel):
    """What a search can be asked beside its pictures, and beside words that are still to be factorized."""

    k: int = _option(10, "How many pictures to return.", Traits(flags=("-k",)), ge=1, le=MAX_K)
    offset: int = _option(
        0, "How many of the best to leave out: the next page.", Traits(saved="refused"), ge=0, le=MAX_OFFSET
    )
    threshold: float | None = _option(None, "Leave out pictures whose score is below this.", Traits(saved="apart"))
    explain: bool = _option(
        True,
        "With the parts of every score; off: the scores alone, which is faster.",
        Traits(saved="apart", flags=("--parts/--no-parts", "explain")),
    )
    spec: SpecValue | None = _option(
        None,
        "Target, Add, Preserve and Remove, instead of an edit.",
        Traits(("words", "picture", "edit"), saved="as answered", flags=()),
    )
    crop: CropValue | None = _option(
        None,
        "Only this part of the reference counts: left,top,right,bottom, each from 0 to 1.",
        Traits(("words", "compared", NO_REFERENCE), saved="apart", metavar="L,T,R,B"),
    )
    weights: WeightsValue | None = _option(
        None,
        "T,A,P,R such as 1,0.5,0.5,0.3, or names such as add=0.8,remove=0.",
        Traits(("words", "picture"), tunes=True, saved="as answered"),
    )
    tau: float = _option(
        TAU,
        "Temperature of the soft late interaction.",
        Traits(tunes=True, in_eval=True, saved="as answered"),
        ge=TAU_MIN,
        le=TAU_MAX,
    )
    score: Rule = _option(
        DEFAULT_SCORING.rule,
        "The rule for how much of the reference stays; paper is the published score.",
        Traits(("words", "picture", NO_REFERENCE), tunes=True, in_eval=True, saved="as answered"),
    )
    reference_weight: float | None = _option(
        None,
        "How much of the reference stays: 0 (the words decide) to 1 (the picture does).",
        Traits(("words", "picture", "paper", NO_REFERENCE), tunes=True, in_eval=True, saved="as answered"),
        ge=0,
        le=1,
        label="Follow the words or the picture?",
    )
    reference_features: ReferenceFeatures = _option(
        DEFAULT_SCORING.reference_features,
        "Which vectors of the reference count: its parts (local), the whole (global) or both.",
        Traits(("words", NO_REFERENCE), tunes=True, in_eval=True, saved="as answered"),
    )
    where: str | None = _option(
        None, "A filter on metadata, such as: class = 'dress' and price < 40", label="Filter on metadata"
    )
    sort: Annotated[str | None, AfterValidator(lambda text: text and _sort(text))] = _option(
        None,
        "Show the pictures found in the order of a column, such as taken, or 'taken desc'; rank and score stay.",
        label="Order",
    )
    exclude_reference: bool = _option(
        True, "Leave the reference itself out of the ranking.", Traits(flags=("--exclude-reference/--keep-reference",))
    )
    near_duplicates: float | None = _option(
        None,
        "Mark hits whose file is equal to a better hit's, or whose cosine with it is at least this, as 0.97.",
        gt=0,
        le=1,
        label="Group near-duplicates",
    )
    method: str = _option(
        TAPR,
        "How pictures are ranked: tapr, or a method of `tapr eval methods` that needs no records.",
        Traits(("words", "picture", NO_REFERENCE), saved="refused"),
    )
    prefilter: Annotated[Budget, PlainValidator(_budget), WithJsonSchema(_COUNT)] | None = _option(
        None,
        "With a first stage: read at most N pictures exactly, or 'exact': as many as the proof needs.",
        Traits(("compared",), saved="refused", metavar="N|exact"),
    )
    budget_ms: float | None = _option(
        None,
        "With a first stage: milliseconds to find the best in; the answer says whether it is proven.",
        Traits(("compared",), saved="refused"),
        gt=0,
        le=3_600_000,
        label="Time limit (ms)",
    )

    @property
    def given(self) -> dict[str, Any]:
        """Return the options that were named by whoever asked, whatever their value."""
        named = {name: getattr(self, name) for name in type(self).model_fields if name in self.model_fields_set}
        return {name: value for name, value in named.items() if not _is_unsaid(name, value)}

    @property
    def _chosen(self) -> dict[str, Any]:
        """Return the options whose value is not the default: programs made from the schema send every default."""
        defaults = {name: field.default for name, field in type(self).model_fields.items()}
        return {name: value for name, value in self.given.items() if defaults[name] is None or value != defaults[name]}

    @property
    def filter(self) -> str | None:
        """What narrows the gallery, as one filter: `where`, and every option that leaves out pictures by a column."""
        parts = [self.where]
        given = [one for one in parts if one]
        return given[0] if len(given) == 1 else " and ".join(f"({one})" for one in given) or None

    @property
    def scoring(self) -> Scoring:
        return Scoring(self.score, self.reference_weight, self.reference_features)

    @model_validator(mode="after")
    def _refuse_what_does_not_go_together(self) -> Self:
        given = self._chosen
        for search, (asking, sentence) in _SEARCHES.items():
            if asking not in given or (search == "paper" and given[asking] != "paper"):
                continue
            for name in given:
                if search in traits_of(name).not_in:
                    what = f"{sentence}: leave out {name}, or leave out {asking}"
                    raise BadOption(what, name, "conflicting_options")
        return self


_MARKED = f"a search takes up to {MAX_FEEDBACK} pictures that are marked so, not {{}}"


class SearchOptions(RankOptions):
    """A whole question: "like this picture, but ...", words alone, or a picture alone."""

    reference: Any = _option(
        None,
        "The picture to start from: a file, or a gallery id.",
        Traits(("words", "picture"), saved="apart", flags=()),
    )
    edit: str | None = _option(
        None,
        "What should be different, in words.",
        Traits(("words", "picture"), saved="apart", flags=()),
        max_length=MAX_EDIT_CHARACTERS,
    )
    text: str | None = _option(
        None, "Search by words alone: what the picture shows.", Traits(saved="apart"), max_length=MAX_EDIT_CHARACTERS
    )
    like: Any = _option(
        None,
        "Search by a picture alone: a file, or a gallery id.",
        Traits(("words",), saved="apart", metavar="PICTURE"),
    )
    more_references: Annotated[
        tuple[Any, ...],
        _pictures(
            "more_references", MAX_REFERENCES - 1, f"a search takes up to {MAX_REFERENCES - 1} of them, not {{}}"
        ),
    ] = _option(
        (),
        "A further reference, up to two; pictures count equally.",
        Traits(
            ("words", "compared", NO_REFERENCE),
            saved="apart",
            flags=("--more-reference", "more_references"),
            metavar="PICTURE",
        ),
    )
    more_like: Annotated[tuple[Any, ...], _pictures("more_like", MAX_FEEDBACK, _MARKED)] = _option(
        (),
        "More like this picture, up to four: a file, or a gallery id; it counts as Preserve.",
        Traits(("compared", "paper"), saved="apart", metavar="PICTURE"),
        label="More like this",
    )
    not_like: Annotated[tuple[Any, ...], _pictures("not_like", MAX_FEEDBACK, _MARKED)] = _option(
        (),
        "Not like this picture, up to four: a file, or a gallery id; it counts as Remove.",
        Traits(("compared", "paper"), saved="apart", metavar="PICTURE"),
        label="Not like this",
    )
    factorizer: Any = _option(
        None,
        "What turns picture and edit into Target, Add, Preserve and Remove.",
        Traits(("words", "picture"), tunes=True, saved="apart", flags=()),
    )

    @classmethod
    def of(cls, **given: Any) -> Self:
        """Check the options; a spec may stand in the edit's place."""
        if isinstance(given.get("edit"), (EditSpec, Mapping)) and given.get("spec") is None:
            given |= {"edit": None, "spec": given["edit"]}
        return super().of(**given)

    @model_validator(mode="after")
    def _refuse_what_cannot_be_searched_by(self) -> Self:
        given = self._chosen
        if "text" in given and not self.text.strip():  # type: ignore[union-attr]
            raise BadOption("text must be words that describe the picture, such as 'a dog on a beach'", "text")
        if "text" in given or "like" in given:
            return self
        _refuse_without_reference(given)
        if "spec" not in given and not (self.edit or "").strip():
            what = "say what should be different: give an edit such as 'at night', or a spec"
            if "reference" not in given:
                what = "there is nothing to search by: give a reference picture and an edit, words as text, or a spec"
            raise BadOption(what, "edit" if "reference" in given else "reference", "missing_option")
        return self


def _refuse_without_reference(given: Mapping[str, Any]) -> None:
    if "reference" in given:
        return
    if "edit" in given:
        what = "name a reference picture for the edit; to search by words alone, give them as text"
        raise BadOption(what, "reference", "missing_option")
    for name in given if "spec" in given else ():
        if NO_REFERENCE in traits_of(name).not_in:
            what = f"{name} goes with a reference picture: name one, or leave {name} out"
            raise BadOption(what, name, "missing_option")


TRAITS: dict[str, Traits] = {
    name: next(part for part in field.metadata if isinstance(part, Traits))
    for name, field in SearchOptions.model_fields.items()
}
PICTURE_LISTS = tuple(name for name, field in SearchOptions.model_fields.items() if field.default == ())


def traits_of(name: str) -> Traits:
    """Return an option's traits; a field that only names a picture for HTTP has none."""
    return TRAITS.get(name, Traits())


def _is_unsaid(name: str, value: Any) -> bool:
    """Tell whether an option has a value that means nothing, as if it were not given."""
    return value is None or (isinstance(value, tuple) and not value) or (name == "method" and value == TAPR)


DEFAULT_OPTIONS = RankOptions()
