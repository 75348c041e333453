"""Edits that ask for the same thing in another medium: "as a sketch", "a real photograph of it", "in 3D"."""

from __future__ import annotations

import re

_NOUNS = (
    "sketch|drawing|painting|cartoon|illustration|icon|clip ?art|emoji|sticker|logo|symbol|render(?:ing)?|3d model|"
    "figure|figurine|sculpture|statue|photo(?:graph)?|watercolou?r|mosaic|comic|anime|engraving|etching|silhouette|"
    "doodle|woodcut|embroidery|origami|pixel ?art|graffiti|stencil|pictogram|line art|artwork|lego model|carving"
)
_MADE = {"drawn": "drawing", "sketched": "sketch", "painted": "painting", "photographed": "photograph",
         "rendered": "render", "illustrated": "illustration", "carved": "carving", "sculpted": "sculpture"}  # fmt: skip
_ASKED = (
    r"(?:(?:make|turn|change|convert|transform|show|draw|have) (?:it|this|that|them)? ?(?:in)?(?:to|as|like)?"
    r"|as|like|into)"
)
_STUFFS = "3d|watercolou?rs?|pencil|ink|charcoal|oil|crayon|pastel"
_SAME = r"(?: of (?:it|this|that|them|the same|this one|the same \w+|this \w+))?"
_NAMED = re.compile(rf"^(?:{_ASKED} )?(?:(?:a|an|the|some) )?(?P<how>(?:[\w-]+ ){{0,4}})(?P<noun>{_NOUNS}){_SAME}$")
_DONE = re.compile(
    rf"^(?:{_ASKED} )?(?P<made>{'|'.join(_MADE)})(?: (?:as|like) (?:a |an )?(?P<noun>(?:[\w-]+ ){{0,3}}(?:{_NOUNS}))"
    r"| (?:in|with) (?P<how>[\w -]+))?$"
)
_IN = re.compile(rf"^(?:in|as) (?:a |an )?(?P<how>(?:[\w-]+ ){{0,2}})(?P<noun>{_STUFFS})(?: style)?$")
_REAL = re.compile(
    r"^(?:(?:as )?the real (?:thing|one)|in real life|a real one|real)(?:,? photographed|,? in a photo)?$"
)
_OF_THINGS = re.compile(r"\b(?:of|with|and|in|on|holding|wearing|instead|not|no|same|black|white|colou?r)\b")


def medium_of(edit: str) -> str:
    """Return the medium that the whole edit asks for, as a noun phrase: "black ink drawing". "" for any other edit."""
    text = re.sub(r"[^\w\s,-]", "", edit.casefold()).strip()
    if match := _DONE.match(text):
        return match["noun"] or f"{match['how'] or ''} {_MADE[match['made']]}".strip()
    if match := _NAMED.match(text):
        how = match["how"].strip()
        if match["noun"].startswith("photo") and how in ("black and white", "colour", "close-up", ""):
            return match["noun"] if not how and re.match(rf"{_ASKED} ", text) else ""  # a tint, not a medium
        if _OF_THINGS.search(how.replace("black and white", "")):
            return ""
        return f"{how} {match['noun']}".strip()
    if match := _IN.match(text):
        noun = match["noun"]
        return f"{match['how']}{'3D render' if noun == '3d' else f'{noun} drawing'}".strip()
    return "real photograph" if _REAL.match(text) else ""
