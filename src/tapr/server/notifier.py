"""Tells of new matches: a thread asks a gallery's saved searches again after it has changed, and posts to webhooks.

A match is posted until the receiver accepts it, at least once, for a day. Bodies are JSON. With a secret they are
signed: the header X-Tapr-Signature holds the HMAC-SHA256 of the body.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import time
from threading import Event, Thread
from typing import Any

from tapr.errors import TaprError
from tapr.query.reference import Reference
from tapr.search.saved import SavedSearches
from tapr.server.engine import Engine
from tapr.server.fetching import Allowed, Fetcher, NotFetched
from tapr.store.saved_searches import Match, SavedSearch, SavedSearchFile
from tapr.utils.retry import RetryPolicy

SIGNATURE = "X-Tapr-Signature"
_AGAIN_SECONDS = 60.0  # until a receiver that did not accept is asked again
_GIVEN_UP_SECONDS = 24 * 3600
_TOGETHER = 100  # matches of one request
log = logging.getLogger("tapr.server")


def saved_searches(engine: Engine) -> SavedSearches:
    """Those of the gallery as it is now, asked as every request is."""

    def opened(picture: Any) -> Reference:
        return picture if isinstance(picture, Reference) else picture.opened(engine)

    return SavedSearches(engine.gallery, engine.search, opened)


class Notifier:
    def __init__(self, gallery: str, engine: Engine, retry: RetryPolicy | None = None) -> None:
        settings = engine.settings
        self.receivers = Fetcher(Allowed.of(settings.webhook), settings.limits, option="--webhook", doing="post to")
        self._gallery, self._engine, self._secret = gallery, engine, settings.webhook_secret
        self._retry = retry or RetryPolicy()
        self._file = SavedSearchFile(engine.gallery.path)
        self._said: set[str] = set()
        self._paused: dict[str, float] = {}  # searches whose receiver did not accept -> when to ask it again
        self._stop = Event()
        self._thread = Thread(target=self._turns, name="tapr-notify", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def turn(self) -> None:
        """Look once. Nothing is done while no search is saved."""
        if not self._file.exists():
            return
        saved = saved_searches(self._engine)
        saved.check(self._say_once)
        for search in saved.all():
            if search.webhook is not None and not self._stop.is_set():
                self._deliver(search)

    def _turns(self) -> None:
        while not self._stop.wait(self._engine.settings.check_seconds):
            try:
                self.turn()
            except TaprError as error:  # such as a gallery whose files are away for now
                self._say_once(f"saved searches: {error}")
            except Exception:  # the thread goes on: the next turn may succeed
                log.exception("saved searches cannot be checked")

    def _deliver(self, search: SavedSearch) -> None:
        if time.monotonic() < self._paused.get(search.name, 0.0):
            return
        since = int(time.time()) - _GIVEN_UP_SECONDS
        while matches := self._file.not_posted(search.name, since, _TOGETHER):
            if not self._posted(search, matches):
                self._paused[search.name] = time.monotonic() + _AGAIN_SECONDS
                return
            self._file.set_posted(matches)

    def _posted(self, search: SavedSearch, matches: list[Match]) -> bool:
        told = [one.to_dict() for one in matches]
        body = json.dumps({"gallery": self._gallery, "search": search.name, "matches": told}).encode()
        headers = {"Content-Type": "application/json"}
        if self._secret is not None:
            headers[SIGNATURE] = "sha256=" + hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
        attempt, wait = 0, 0.0
        while not self._stop.wait(wait):
            attempt += 1
            status, after, said = None, None, "no answer"
            try:
                status, after = self.receivers.post(search.webhook or "", body, headers)
                if 200 <= status < 300:
                    return True
                said = f"status {status}"
            except NotFetched as error:
                said = str(error)
            pause = self._retry.wait(attempt, status, after)
            if pause is None:
                self._say_once(f"the webhook of the saved search {search.name!r} does not accept matches: {said}")
                return False
            wait = pause
        return False

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            log.warning("%s", sentence)
