"""Settings of a gallery that later index runs go on with, and how the options of a run change them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tapr.errors import BadInput
from tapr.index.options import IndexOptions
from tapr.index.sources import Found, resolve
from tapr.store.catalog import CAPTIONS, EXIF, FIRST_STAGE, Catalog
from tapr.store.columns import AUTO, ColumnType, declared_type


@dataclass(frozen=True)
class Settings:
    """Choices that the catalogue keeps for later runs. None: nobody said."""

    sources: list[str]
    columns: dict[str, ColumnType]  # declared types
    captions: bool | None
    first_stage: bool | None
    exif: bool | None
    hidden: set[str]  # files of the sources that stay out, because their pictures were put or deleted one by one

    @classmethod
    def of(cls, catalog: Catalog) -> Settings:
        """Read them from the catalogue."""
        captions, first_stage = catalog.get_state(CAPTIONS), catalog.get_state(FIRST_STAGE)
        exif = catalog.get_state(EXIF)
        return cls(catalog.sources(), catalog.declared(), captions, first_stage, exif, catalog.written.hidden())

    def changed_by(self, options: IndexOptions) -> Settings:
        """Return them with what the options say."""
        return Settings(
            _sources(self.sources, options),
            _columns(self.columns, options.columns),
            self.captions if options.captions is None else options.captions,
            self.first_stage if options.first_stage is None else options.first_stage,
            self.exif if options.exif is None else options.exif,
            self.hidden,
        )

    def keep(self, catalog: Catalog) -> None:
        """Write them to the catalogue."""
        catalog.set_state("sources", self.sources)
        catalog.declare(self.columns)
        catalog.set_state(CAPTIONS, self.captions)
        catalog.set_state(FIRST_STAGE, self.first_stage)
        catalog.set_state(EXIF, self.exif)
        catalog.written.set_hidden(self.hidden)


def check_sources(options: IndexOptions, found: Found, catalog: Catalog | None = None) -> None:
    """Refuse sources and columns that the options name and that are not there; earlier sources may be away."""
    known = catalog.sources() if catalog else []
    for source in (*options.images, *(resolve(new) for _, new in options.move)):
        if source in found.empty:
            also = f", or let the gallery forget it with tapr sources --drop {source!r}" if source in known else ""
            raise BadInput(f"{found.empty[source]}: check the path{also}; nothing was changed")
        if source in found.unreadable:
            raise BadInput(f"the folder {source!r} cannot be listed: check its permissions; nothing was changed")
    names = {name for candidate in found.candidates for name in candidate.metadata}
    names |= {column.name for column in catalog.columns()} if catalog else set()
    for name, type_ in options.columns.items():
        if name not in names:
            raise BadInput(
                f"there is no column {name!r} to be of type {type_}: the columns are "
                f"{', '.join(sorted(names)) or 'none, because the pictures come from no table'}"
            )


def _sources(known: Sequence[str], options: IndexOptions) -> list[str]:
    """Return the resulting sources, without repeats, in order."""
    sources = list(known)
    for dropped in options.drop:
        sources.remove(_known(dropped, sources))
    for old, new in options.move:
        sources[sources.index(_known(old, sources))] = resolve(new)
    return list(dict.fromkeys([*sources, *options.images]))


def _columns(known: Mapping[str, ColumnType], declared: Mapping[str, str]) -> dict[str, ColumnType]:
    kept = {name: type_ for name, type_ in known.items() if name not in declared}
    return kept | {name: declared_type(name, type_) for name, type_ in declared.items() if type_ != AUTO}


def _known(source: str, sources: list[str]) -> str:
    """Return the stored form of a source, given as stored or as a relative path."""
    for name in (source, resolve(source)):
        if name in sources:
            return name
    raise BadInput(f"{source!r} is not a source of the gallery: its sources are {', '.join(sources) or 'none'}")
