"""Short sentences in the pages, and links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MADE = ("settings.md", "cli.md", "errors.md", "python.md", "changelog.md")  # from the code, or from another page
DOCS = [page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in MADE]
SHORT = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", *(str(page.relative_to(ROOT)) for page in DOCS)]
MOST_WORDS = 30
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def sentences(text: str) -> list[str]:
    """Of the prose: without code, tables, headings and targets of links."""
    text = re.sub(r"^```.*?^```$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:    |\||#).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^\s*(?:[-*]|\d+\.) ", "\n", text, flags=re.MULTILINE)
    paragraphs = (" ".join(part.split()) for part in re.split(r"\n\s*\n|\n\n", text))
    return [sentence for part in paragraphs for sentence in re.split(r"(?<=[.!?:;])\s+", part) if sentence]


@pytest.mark.parametrize("name", SHORT)
def test_sentences_are_short(name: str) -> None:
    long = [text for text in sentences((ROOT / name).read_text(encoding="utf-8")) if len(text.split()) > MOST_WORDS]
    assert not long


def test_a_long_sentence_would_be_found() -> None:
    assert sentences("# A\n\n- one [two](x). three\n  four\n- five: six\n\n| a |\n") == [
        "one two.",
        "three four",
        "five:",
        "six",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    lost = [target for target in targets if "://" not in target and not (page.parent / target).exists()]
    assert not lost
