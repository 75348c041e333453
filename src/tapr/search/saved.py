"""Saved searches: a question under a name, asked again after the gallery has changed.

A search is saved as it was answered: its spec, its weights, the weight of the reference and the vectors of its pictures
are fixed, so that the score of a picture does not depend on the rest of the gallery, on a factorizer or on time. A
picture fits if it meets the filter and its score is at least the threshold. It is new if no picture of equal content
fitted before.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from urllib.parse import urlsplit

import numpy as np
from PIL import Image

from tapr.encoders.base import EncoderCard, Evidence
from tapr.errors import BadInput, BadOption
from tapr.gallery import Gallery
from tapr.options import PICTURE_LISTS, TRAITS, SearchOptions
from tapr.query.crop import cropped
from tapr.query.reference import Reference
from tapr.result import Ranking, json_ready
from tapr.search.searcher import PictureOpener, Searcher
from tapr.store.quota import Quota
from tapr.store.saved_searches import Fit, Match, SavedSearch, SavedSearchFile, checked_name

MAX_FITS = 1000  # pictures that may fit a search when it is saved: a lower threshold tells nothing
_PAGE, _MOST_PAGES = 200, 50
_ROUNDING = 1e-3  # between a kernel's order and the definition's scores


@runtime_checkable
class Answering(Protocol):
    """Answers questions on one gallery: a Searcher, or a server's snapshot with its own limits."""

    @property
    def gallery(self) -> Gallery: ...
    @property
    def pictures(self) -> PictureOpener: ...
    def search(self, options: SearchOptions) -> Ranking: ...


class SavedSearches:
    """The saved searches of one gallery. They are asked by a searcher of their own, or by the given one."""

    def __init__(self, gallery: Gallery | Answering | str | Path) -> None:
        self._searcher = gallery if isinstance(gallery, Answering) else Searcher(gallery)
        self._gallery = self._searcher.gallery
        self.file = SavedSearchFile(self._gallery.path)

    def save(self, name: str, *, webhook: str | None = None, **options: Any) -> SavedSearch:
        """Save a search under a name, in place of any of that name. `options` are those of tapr.search.

        With `threshold`, that is the score from which on a picture fits; without, the score of the last of the k hits
        now. `webhook` is an address that a server which may do so posts new matches to.
        """
        return self.save_question(name, SearchOptions.of(**options), webhook)

    def save_question(
        self,
        name: str,
        asked: SearchOptions,
        webhook: str | None = None,
        words: str | None = None,
        quota: Quota | None = None,
    ) -> SavedSearch:
        """Save a question under a name. `words`: what a spec was made of, to show to people."""
        name = checked_name(name)
        _refuse_unfit(asked, webhook)
        opened = self._opened(asked)
        ranking = self._searcher.search(opened.model_copy(update={"threshold": None, "explain": True}))
        threshold = asked.threshold
        if threshold is None:
            if not ranking.hits:
                what = "nothing is found now, so no score says what fits: give a threshold"
                raise BadOption(what, "threshold", "missing_option")
            threshold = ranking.hits[-1].score
        pictures = [
            *(("reference", one) for one in ranking.references),
            *(("more_like", one) for one in opened.more_like),
            *(("not_like", one) for one in opened.not_like),
        ]
        question = _frozen(ranking, asked, words, pictures)
        saved = SavedSearch(name, question, threshold, int(time.time()), webhook, ranking.snapshot)
        known = self._fits(_again(question, pictures), threshold)
        if len(known) > MAX_FITS:
            what = f"more than {MAX_FITS:,} pictures have a score of {threshold:.4g} or more: give a higher threshold"
            raise BadOption(what, "threshold")
        limit = partial((quota or Quota()).check_saved, self._gallery.usage(), self.file)
        self.file.save(saved, [(role, _packed(one)) for role, one in pictures], known, limit)
        return saved

    def all(self) -> list[SavedSearch]:
        return self.file.all()

    def delete(self, name: str) -> None:
        self.file.delete(name)

    def run(self, name: str) -> Ranking:
        """Return the k best of the gallery as it is now."""
        return self._searcher.search(self._question(self.file.get(name)))

    def matches(self, name: str | None = None, *, after: int = 0) -> list[Match]:
        """Return new pictures that were found so far, the oldest first; of one search, or of all."""
        return self.file.matches(name, after=after)

    def check(self, say: Callable[[str], None] = lambda sentence: None) -> list[Match]:
        """Ask every saved search again that has not been compared with this snapshot, and return new pictures that fit.

        `say` is told of a search that cannot be asked any more; the others go on.
        """
        if not self.file.exists():
            return []
        before, snapshot = self.file.last_number(), self._gallery.manifest.snapshot or 0
        for search in self.file.all():
            if search.checked == snapshot:
                continue
            try:
                self.file.record(search, self._fits(self._question(search), search.threshold), snapshot)
            except BadInput as error:  # such as a filter on a column that is gone
                say(f"the saved search {search.name!r} cannot be asked: {error}")
        return self.file.matches(after=before)

    def _opened(self, asked: SearchOptions) -> SearchOptions:
        """Return the same question with its pictures opened."""
        first, open_picture = "reference" if asked.like is None else "like", self._searcher.pictures.open
        changed: dict[str, Any] = {name: tuple(map(open_picture, getattr(asked, name))) for name in PICTURE_LISTS}
        if getattr(asked, first) is not None:
            changed |= {first: cropped(open_picture(getattr(asked, first)), asked.crop), "crop": None}
        return asked.model_copy(update=changed)

    def _question(self, search: SavedSearch) -> SearchOptions:
        if EncoderCard.from_dict(search.question["encoder"]) != self._gallery.card:
            raise BadInput(f"{search.name!r} was saved with another encoder than the gallery has now: save it again")
        return _again(search.question, [(role, _unpacked(data)) for role, data in self.file.pictures(search.name)])

    def _fits(self, asked: SearchOptions, threshold: float) -> list[Fit]:
        """Return all pictures that fit, the best first, up to _MOST_PAGES pages."""
        fits: list[Fit] = []
        page = {"k": _PAGE, "near_duplicates": None, "explain": True, "threshold": None}
        for number in range(_MOST_PAGES):
            ranking = self._searcher.search(asked.model_copy(update={**page, "offset": number * _PAGE}))
            for hit in ranking.hits:
                entry = ranking.gallery.find(hit.id)
                if hit.score >= threshold and entry is not None:
                    fits.append(Fit(hit.id, entry.sha256, hit.score))
            if len(ranking.hits) < _PAGE or ranking.hits[-1].score < threshold - _ROUNDING:
                break
        return fits


def _refuse_unfit(asked: SearchOptions, webhook: str | None) -> None:
    if webhook is not None and urlsplit(webhook).scheme not in ("http", "https"):
        raise BadOption("a webhook is written like https://hooks.example/matches", "webhook")
    for option in asked.given:
        if TRAITS[option].saved == "refused":
            what = f"a saved search is exact and begins with the best: leave out {option}"
            raise BadOption(what, option, "conflicting_options")


def _frozen(
    ranking: Ranking, asked: SearchOptions, words: str | None, pictures: list[tuple[str, Reference]]
) -> dict[str, Any]:
    """Return the question as it was answered, JSON-ready: nothing is left to be decided."""
    kept = [name for name, traits in TRAITS.items() if traits.saved == "as asked"]
    question: dict[str, Any] = {name: json_ready(getattr(asked, name)) for name in kept}
    question |= {"spec": ranking.spec.to_dict(), "weights": json_ready(ranking.weights), "tau": ranking.tau}
    if ranking.references:
        rule = "paper" if ranking.reference_weight is None else "fixed"
        question |= {"score": rule, "reference_weight": ranking.reference_weight}
        question |= {"reference_features": asked.reference_features} if rule == "fixed" else {}
    words = words or (asked.text if asked.text is not None else asked.edit)
    named = [{"role": role, "id": one.id, "key": one.sha256, "crop": one.crop} for role, one in pictures]
    encoder = ranking.gallery.manifest.encoder
    return {"asked": question, "words": words, "encoder": encoder, "pictures": named}


def _again(question: dict[str, Any], pictures: list[tuple[str, Reference]]) -> SearchOptions:
    of: dict[str, list[Reference]] = {}
    for role, picture in pictures:
        of.setdefault(role, []).append(picture)
    first, *more = of.get("reference", [None])
    named = {"reference": first, "more_references": more}
    named |= {name: of.get(name, []) for name in ("more_like", "not_like")}
    return SearchOptions.of(**question["asked"], **named)


def _packed(picture: Reference) -> bytes:
    """Pack a picture as a query needs it, and small enough to look at."""
    shown = io.BytesIO()
    picture.image.save(shown, "JPEG", quality=85)
    names = np.array([picture.sha256, picture.id or ""])
    file = io.BytesIO()
    np.savez(
        file, whole=picture.evidence.global_vectors, local=picture.evidence.local_vectors, names=names,
        crop=np.array(picture.crop or (), np.float64), shown=np.frombuffer(shown.getvalue(), np.uint8),
    )  # fmt: skip
    return file.getvalue()


def _unpacked(data: bytes) -> Reference:
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        sha256, id_ = map(str, file["names"])
        crop = tuple(file["crop"].tolist()) or None
        image = Image.open(io.BytesIO(file["shown"].tobytes())).convert("RGB")
        return Reference(image, Evidence(file["whole"], file["local"]), sha256, crop, id_ or None)
