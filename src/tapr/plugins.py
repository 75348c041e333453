"""Registries of methods, datasets, factorizers and encoders: from folders of this package and from entry points of
other packages.

A module in a registry's folder adds the rows in its `ROWS`: put a file there and it is registered. Another package adds
one row per entry point of the registry's group. Its code is loaded when the row is used.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from tapr.errors import BadInput, BadPlugin

Row = TypeVar("Row")


class Registry(Mapping[str, Row], Generic[Row]):
    """Rows by name: first those of the folder in their order, then those of other packages by name."""

    def __init__(
        self,
        kind: str,  # the kind of row, for messages
        folder: str,  # the package whose modules have ROWS
        group: str,  # the entry point group
        *,
        name_of: Callable[[Row], str],
        order_of: Callable[[Row], int],
        is_row: Callable[[object], bool],
    ) -> None:
        self.kind, self.group = kind, group
        self._folder = folder
        self._name_of, self._order_of, self._is_row = name_of, order_of, is_row
        self._loaded: dict[str, Row] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self.own, *sorted(self.foreign))))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self.own or name in self.foreign

    def __getitem__(self, name: str) -> Row:
        """Return the row of this name. Unknown names, names with two providers and broken packages are refused with a
        sentence.
        """
        offers = self.foreign.get(name, [])
        if not offers:
            row = self._of_its_file(name)
            if row is not None:
                return row
        if name in self.own and not offers:
            return self.own[name]
        if not offers:
            raise BadInput(f"unknown {self.kind} {name!r}: choose {', '.join(self)}", code="unknown_name")
        packages = (["tapr itself"] if name in self.own else []) + [_package(offer) for offer in offers]
        if len(packages) > 1:
            raise BadPlugin(
                f"the {self.kind} {name!r} is offered by {' and by '.join(packages)}: "
                f"uninstall {packages[-1]}, or have it take another name"
            )
        if name not in self._loaded:
            self._loaded[name] = self._load(offers[0])
        return self._loaded[name]

    def working(self) -> Iterator[tuple[str, Row]]:
        """Return every row that loads. The others are left out, and `broken` says why."""
        for name in self:
            if name not in self.broken:
                yield name, self[name]

    @cached_property
    def own(self) -> dict[str, Row]:
        """Return the rows of the folder's modules."""
        package = importlib.import_module(self._folder)
        rows: list[Row] = []
        for module_info in pkgutil.iter_modules(package.__path__):
            module = importlib.import_module(f"{self._folder}.{module_info.name}")
            rows += getattr(module, "ROWS", ())
        known: dict[str, Row] = {}
        for row in sorted(rows, key=self._order_of):
            if known.setdefault(self._name_of(row), row) is not row:
                raise BadPlugin(f"two files of {self._folder} offer the {self.kind} {self._name_of(row)!r}: rename one")
        return known

    def _of_its_file(self, name: str) -> Row | None:
        """Return the row of the module that has the row's name: the other modules need not be imported for it."""
        if "own" in self.__dict__:  # all are there already
            return self.own.get(name)
        module = f"{self._folder}.{name.replace('-', '_')}"
        if not name.replace("-", "_").isidentifier() or importlib.util.find_spec(module) is None:
            return None
        rows = getattr(importlib.import_module(module), "ROWS", ())
        return next((row for row in rows if self._name_of(row) == name), None)

    @cached_property
    def foreign(self) -> dict[str, list[EntryPoint]]:
        """Return the entry points of other packages by name, not loaded."""
        offers: dict[str, list[EntryPoint]] = {}
        for offer in entry_points(group=self.group):
            offers.setdefault(offer.name, []).append(offer)
        return offers

    @cached_property
    def broken(self) -> dict[str, str]:
        """Name -> why it does not load. Loads the rows of all packages."""
        reasons = {}
        for name in self.foreign:
            try:
                self[name]
            except BadInput as error:
                reasons[name] = str(error)
        return reasons

    def _load(self, offer: EntryPoint) -> Row:
        refused = f"the {self.kind} {offer.name!r} of the package {_package(offer)} cannot be used"
        advice = "mend or uninstall that package"
        try:
            row = offer.load()
        except Exception as error:  # any error of that package
            raise BadPlugin(f"{refused} ({type(error).__name__}: {error}): {advice}") from error
        if not self._is_row(row):
            raise BadPlugin(f"{refused} ({offer.value} is no {self.kind}): {advice}")
        if self._name_of(row) != offer.name:
            raise BadPlugin(f"{refused} ({offer.value} is named {self._name_of(row)!r}): {advice}")
        return row  # type: ignore[no-any-return]


def _package(offer: EntryPoint) -> str:
    return offer.dist.name if offer.dist is not None else offer.module
