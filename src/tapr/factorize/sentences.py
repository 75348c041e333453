"""Target: one sentence that names the subject and says all that is added."""

from __future__ import annotations

from collections.abc import Sequence

from tapr.factorize.grammar.phrases import Atom
from tapr.factorize.grammar.words import lexicon, singular, with_article
from tapr.factorize.parts_of_speech import sense

MAX_WORDS = 40  # well within the 77 tokens of CLIP, and the 48 of smaller text towers
_NOUNS_OF_QUALITY = ("colour", "colours", "fit", "length", "sleeves", "dots", "print")


def target_sentence(subject: str, atoms: Sequence[Atom], scene: str = "") -> str:
    """Join "dress" and [black, long sleeves, from behind] to "A black dress with long sleeves, from behind."

    The sentence ends before the first part that would make it longer than MAX_WORDS.
    """
    style = ""
    opening: list[str] = []
    after: list[str] = []
    belongings: list[str] = []
    views: list[str] = []
    for atom in atoms:
        if _is_subject(atom, subject):
            subject = atom.text
        elif _is_style(atom.text):
            style = atom.text
        elif not subject and atom.text in lexicon().classes["numbers"]:
            subject = atom.text
        elif lexicon().kind(atom.text) == "emotion":
            opening.append(atom.text)
        elif atom.role == "view":
            views.append(f", {_at(atom)}")
        elif atom.role == "action":
            after.append(f"{'' if not after else ','} {atom.text}")
        elif atom.role == "quality" and atom.text.split()[-1] not in _NOUNS_OF_QUALITY:
            opening.append(atom.text)
        elif atom.lead not in ("", "with"):
            after.append(f" {atom.lead.replace('-', ' ')} {_said(atom)}")
        else:
            belongings.append(_said(atom))
    if not subject and belongings and not opening and not after:
        subject, belongings = belongings[0], belongings[1:]
    head = _head(subject, opening, has_more=bool(after or belongings))
    parts = [f"{with_article(style)} of {head}" if style and head else with_article(style) if style else head, *after]
    parts += [f" {'with' if not index else 'and'} {thing}" for index, thing in enumerate(belongings)]
    parts += [f", in {with_article(scene)}"] if scene else []
    return _finish([*parts, *views])


def _is_subject(atom: Atom, subject: str) -> bool:
    """Return the added atom that already speaks of the subject: "two dogs playing" of "dogs"."""
    if not subject or atom.lead not in ("", "with"):
        return False
    name, text = (" ".join(map(singular, phrase.split())) for phrase in (subject, atom.text))
    return f" {name} " in f" {text} "


def _is_style(text: str) -> bool:
    return lexicon().kind(text) == "style" or (
        len(text.split()) > 1 and lexicon().kind(text.rsplit(maxsplit=1)[-1]) == "style"
    )


def _at(atom: Atom) -> str:
    kind = lexicon().kind(atom.text)
    lead = "in" if kind in ("weather", "season") or atom.text == "daylight" else "at" if kind == "time" else ""
    return f"{lead} {atom.text}".strip()


def _said(atom: Atom) -> str:
    is_one = lexicon().is_quality(atom.text.split()[0]) and sense(atom.text.split()[-1]) == "thing"  # "smaller vase"
    return with_article(atom.text) if atom.determiner in ("a", "an", "the") or is_one else atom.text


def _head(subject: str, qualities: Sequence[str], has_more: bool) -> str:
    described = ", ".join(qualities)
    if subject:
        return with_article(f"{described} {subject}".strip())
    return f"something {described}" if described else "something" if has_more else ""


def _finish(parts: Sequence[str]) -> str:
    text = ""
    for part in parts:
        if len(f"{text}{part}".split()) > MAX_WORDS and text:
            break
        text += part
    text = " ".join(text.split()[:MAX_WORDS]).lstrip(", ")
    return text[:1].upper() + text[1:] + ("." if text else "")
