"""The HTML report of a search: one self-contained page, written from a template and JSON."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

from PIL import Image

from tapr.errors import BadInput
from tapr.explain import heatmap as explain
from tapr.explain.calibration import Pictures, Scale, words_of
from tapr.explain.marks import Marks, is_met, marks, said
from tapr.images.decode import BadImage, load_image
from tapr.query.factors import BY_NAME, FACTORS
from tapr.result import Hit, Ranking, title_of
from tapr.utils.amounts import counted
from tapr.utils.files import write_atomically

THUMBNAIL = 256  # pixels, the longer side
_OVERLAY = 192  # heat maps are smooth: small ones scale up without loss, the line around a finding a little


@dataclass(frozen=True, eq=False)
class Panel:
    """One search on the page."""

    ranking: Ranking
    edit: str | None = None
    answer: str | None = None  # the id of the right answer, marked where it stands
    note: str | None = None


def write_report(
    path: str | Path, panels: Sequence[Panel], title: str = "tapr search", about: Sequence[str] = ()
) -> Path:
    """Write the page atomically, `about` under its title; a hit whose file is gone is shown by its name."""
    path = Path(path)
    if not path.parent.is_dir():
        raise BadInput(f"there is no folder {str(path.parent)!r} to write the report into")
    data = {
        "title": title,
        "about": list(about),
        "factors": {row.name: {"colour": row.css, "label": row.label} for row in FACTORS},
        "panels": [_panel(panel) for panel in panels],
    }
    template = files("tapr.explain").joinpath("report.html").read_text(encoding="utf-8")
    # "</script>" or "<!--" inside a file name must not end the script element
    payload = json.dumps(data, ensure_ascii=False).replace("<", "\\u003c").replace("\u2028", "\\u2028")
    page = template.replace("{{title}}", html.escape(title)).replace("{{data}}", payload)
    try:
        write_atomically(path, page.encode())
    except OSError as error:
        raise BadInput(f"cannot write the report {str(path)!r}: {error.strerror}") from None
    return path


def _panel(panel: Panel) -> dict[str, Any]:
    ranking = panel.ranking
    query, gallery = ranking.query, ranking.gallery
    searched = [explain.heat_of(query, gallery, gallery.position_of(hit.id)) for hit in ranking.hits]
    tops = explain.strongest([heat for heats in searched for heat in heats])
    scale = Scale.of(gallery)
    outlined = _outlined(ranking)
    hits = []
    for hit, heats, told in zip(ranking.hits, searched, marks(ranking), strict=True):
        shrunk = thumbnail(hit.path)
        hits.append(
            {
                "rank": hit.rank,
                "id": hit.id,
                "score": hit.score,
                "name": title_of(PurePath(hit.id).name, hit.metadata, hit.caption),
                "answer": hit.id == panel.answer,
                "picture": data_url(shrunk, "JPEG") if shrunk else None,
                "parts": _parts(hit, told),
                "heat": _overlays(heats, scale, tops, shrunk, gallery.card, outlined[hit.id]) if shrunk else {},
            }
        )
    return {
        "edit": panel.edit,
        "note": panel.note,
        "reference": data_url(_shrink(ranking.references[0].image), "JPEG") if ranking.references else None,
        "terms": [  # the key of a heat map; null: the term has no place in a picture
            {"factor": term.factor, "text": term.text, "key": term.id if term.reads == "local" else None}
            for term in query.terms
        ],
        "hits": hits,
        "facts": f"{counted(ranking.searched, 'picture')} searched with {ranking.encoder} ({ranking.extractor}), "
        f"factorizer {ranking.factorizer}, {ranking.matched}{ranking.scored}",
        "notes": list(ranking.notes),
    }


def _parts(hit: Hit, told: Marks) -> list[dict[str, Any]]:
    """What each term adds; whether the picture shows what an atom names, and whether that was wished."""
    parts = []
    for part, found in zip(hit.contributions, told, strict=True):
        sign = BY_NAME[part.factor].sign
        word = {"said": said(sign, found), "met": is_met(sign, found)} if found else {}
        parts.append({"factor": part.factor, "text": part.label, "value": part.value, **word})
    return parts


def _outlined(ranking: Ranking) -> dict[str, set[str]]:
    """Id of a hit -> the atoms that it surely shows."""
    atoms = [term.text for term in ranking.query.terms if term.from_words and term.reads == "local"]
    ids = [hit.id for hit in ranking.hits]
    shown = Pictures.of(ranking.gallery, ids)
    told = words_of(atoms, shown, ranking.gallery.encoder, ranking.gallery) if atoms and ids else []
    return {
        id_: {atom for atom, words in zip(atoms, told, strict=False) if words[place] == "found"}
        for place, id_ in enumerate(ids)
    }


def _overlays(
    heats: Sequence[explain.Heat],
    scale: Scale,
    tops: dict[Any, float],
    thumbnail: Image.Image,
    card: Any,
    outlined: set[str],
) -> dict[str, str]:
    """Id of a term -> overlay; the combined map under the empty name. Words alone have no place in a picture."""
    if not heats:
        return {}
    factor = _OVERLAY / max(thumbnail.size)
    size = max(1, round(thumbnail.width * factor)), max(1, round(thumbnail.height * factor))
    out = {"": data_url(explain.render_signed(explain.combined(heats), size, card), "PNG")}
    for heat in heats:
        is_found = heat.term.text in outlined
        overlay = explain.overlay(heat, scale, tops[heat.scale], size, card, is_found=is_found)
        out[heat.term.id] = data_url(overlay, "PNG")
    return out


def thumbnail(path: str) -> Image.Image | None:
    try:
        return _shrink(load_image(path, side=THUMBNAIL))
    except BadImage:
        return None


def _shrink(image: Image.Image) -> Image.Image:
    image = image.copy()
    image.thumbnail((THUMBNAIL, THUMBNAIL))
    return image


def data_url(image: Image.Image, format_: str) -> str:
    buffer = io.BytesIO()
    image.save(buffer, format_, **({"quality": 85} if format_ == "JPEG" else {}))
    return f"data:image/{format_.lower()};base64,{base64.b64encode(buffer.getvalue()).decode()}"
