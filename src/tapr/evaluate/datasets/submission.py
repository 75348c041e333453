"""The form in which a benchmark's server wants answers: data of each dataset's file, for evaluate/submit.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True)
class AnswerFile:
    """One file: query id -> a list of so many pictures."""

    name: str  # with {split} and {method}
    length: int
    ranks: Literal["gallery", "subset"] = "gallery"
    head: Mapping[str, str] = field(default_factory=dict)  # what stands beside the queries


@dataclass(frozen=True)
class Submission:
    files: tuple[AnswerFile, ...]
    kinds: tuple[type, ...] = (str,)  # of a picture's name in the file
    called: str = "names"  # the same in words
    write: Callable[[str], Any] = str  # the name of a picture -> what the server calls it
    read: Callable[[Any], str] = str  # and back
    knows_gallery: bool = True  # False: the gallery is known only where its pictures are, and is not checked
    names_reference: bool = True  # whether the reference may be among the answers
    head_rule: str = ""  # what a file with a wrong head is told

    @property
    def head_keys(self) -> frozenset[str]:
        return frozenset(key for file in self.files for key in file.head)

    def file_of(self, content: Mapping[str, Any]) -> AnswerFile | None:
        """The file that the content's head names."""
        return next((file for file in self.files if all(content.get(k) == v for k, v in file.head.items())), None)


# answers of a benchmark without a server; your own pictures may be called 12
LISTS = Submission((AnswerFile("", 50),), kinds=(str, int))
