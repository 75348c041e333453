"""An answer in a notebook: a grid of thumbnails with their marks, or a table of pandas."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from tapr.errors import BadInput
from tapr.explain.marks import marks, said
from tapr.explain.report import data_url, thumbnail
from tapr.query.factors import BY_NAME
from tapr.result import Hit, Ranking

if TYPE_CHECKING:
    import pandas as pd

MAX_SHOWN = 24
_CARD = '<figure style="display:inline-block;width:150px;margin:4px;vertical-align:top;font:12px sans-serif">'
_IMAGE = '<img style="width:150px;height:150px;object-fit:contain" alt="{}" src="{}">'


def html_of(ranking: Ranking) -> str:
    """Return the answer as HTML; what comes from pictures and words is escaped."""
    told = marks(ranking)[:MAX_SHOWN]
    cards = []
    for hit, found in zip(ranking.hits[:MAX_SHOWN], told, strict=True):
        image = thumbnail(hit.path)
        picture = "" if image is None else _IMAGE.format(escape(hit.name), data_url(image, "JPEG"))
        words = [
            f"{escape(part.label)}: {said(BY_NAME[part.factor].sign, mark)}"
            for part, mark in zip(hit.contributions, found, strict=True)
            if mark is not None and said(BY_NAME[part.factor].sign, mark)
        ]
        title = f"{hit.rank}. {escape(hit.name)} ({hit.score:.4f})"
        cards.append(f"{_CARD}{picture}<figcaption>{'<br>'.join((title, *words))}</figcaption></figure>")
    more = len(ranking.hits) - len(cards)
    rest = "".join(f"<p>{escape(note)}</p>" for note in ranking.notes)
    return f"<div>{''.join(cards)}{f'<p>and {more:,} more</p>' if more else ''}{rest}</div>"


def data_frame(hits: tuple[Hit, ...]) -> pd.DataFrame:
    """Return a row per hit; a column of the metadata that is called like a field of the hit gets `metadata.` before."""
    try:
        import pandas as pd
    except ImportError:
        raise BadInput("to_pandas needs pandas: pip install pandas") from None
    rows: list[dict[str, Any]] = []
    for hit in hits:
        fields = {"rank": hit.rank, "id": hit.id, "score": hit.score, "name": hit.name, "path": hit.path}
        fields |= {"caption": hit.caption, "width": hit.width, "height": hit.height}
        rows.append(fields | {f"metadata.{key}" if key in fields else key: hit.metadata[key] for key in hit.metadata})
    return pd.DataFrame(rows)
