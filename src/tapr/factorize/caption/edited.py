"""What an edit made of a caption."""

from __future__ import annotations

from dataclasses import dataclass, field

from tapr.factorize.grammar.reading import tidy


@dataclass(frozen=True)
class Edited:
    target: str
    add: tuple[str, ...] = ()
    preserve: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()  # each operation in words: 'exchange colour: "red" -> "blue" (dress)'
    notes: tuple[str, ...] = ()


@dataclass
class CaptionChanges:
    """Collects the changes while the editor works."""

    add: dict[str, None] = field(default_factory=dict)
    remove: dict[str, None] = field(default_factory=dict)
    preserve: dict[str, None] = field(default_factory=dict)
    steps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def came(self, phrase: str) -> None:
        if phrase := tidy(phrase):
            self.add[phrase] = None

    def went(self, phrase: str) -> None:
        if phrase:
            self.remove[phrase] = None

    def stays(self, phrase: str) -> None:
        if phrase:
            self.preserve[phrase] = None

    def step(self, operation: str, old: str, new: str, of: str = "") -> None:
        arrow = " -> ".join(f'"{part}"' for part in (old, new) if part)
        self.steps.append(f"{operation}: {arrow}{f' ({of})' if of else ''}")
