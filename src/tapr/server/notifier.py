"""Finds new matches of saved searches after a gallery has changed, and posts them to webhooks.

One thread looks for matches. Each address has a thread of its own while matches wait for it, so that a slow receiver
holds up nobody else. A match is posted until the receiver accepts it, at least once, for a day; it waits in the file of
saved searches. Bodies are JSON. With a secret they are signed: the header X-Tapr-Signature holds the HMAC-SHA256 of the
body.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import time
from threading import Event, Thread
from urllib.parse import urlsplit

from tapr.errors import TaprError
from tapr.search.saved import SavedSearches
from tapr.server.engine import Engine
from tapr.server.fetching import Allowed, Fetcher, NotFetched
from tapr.store.saved_searches import Match, SavedSearch, SavedSearchFile
from tapr.utils.retry import RetryPolicy

SIGNATURE = "X-Tapr-Signature"
_AGAIN_SECONDS = 60.0  # until a receiver that did not accept is asked again
_GIVEN_UP_SECONDS = 24 * 3600
_POST_SECONDS = 10.0  # for one request, from its connection to its answer
_MAX_MATCHES = 100  # of one request
_MAX_DELIVERIES = 16  # addresses that are posted to at a time
log = logging.getLogger("tapr.server")


def saved_searches(engine: Engine) -> SavedSearches:
    """Return the saved searches of the gallery as it is now, asked as every request is."""
    return SavedSearches(engine.snapshot())


class Notifier:
    """The threads that look for matches and post them."""

    def __init__(self, gallery: str, engine: Engine, retry: RetryPolicy | None = None) -> None:
        settings = engine.settings
        self.receivers = Fetcher(
            Allowed.of(settings.webhook), settings.limits, _POST_SECONDS, option="--webhook", doing="post to"
        )
        self._gallery, self._engine, self._secret = gallery, engine, settings.webhook_secret
        self._retry = retry or RetryPolicy()
        self._file = SavedSearchFile(engine.gallery.path)
        self._warned: set[str] = set()
        self._deliveries: dict[str, Thread] = {}  # by address
        self._paused: dict[str, float] = {}  # addresses that did not accept -> when to ask again
        self._stop = Event()
        self._thread = Thread(target=self._turns, name="tapr-notify", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop. A request that is under way is not waited for: what was not accepted is posted after the next start."""
        self._stop.set()
        self._thread.join()

    def turn(self) -> None:
        """Look once. Nothing is done while no search is saved."""
        if not self._file.exists():
            return
        saved = saved_searches(self._engine)
        saved.check(self._warn_once)
        for search in saved.all():
            address = urlsplit(search.webhook or "").netloc
            if address and self._not_posted(search) and self._may_post(address):
                delivery = Thread(
                    target=self._deliver, args=(search, address), name=f"tapr-post {address}", daemon=True
                )
                delivery.start()
                self._deliveries[address] = delivery

    def _turns(self) -> None:
        while not self._stop.wait(self._engine.settings.check_seconds):
            try:
                self.turn()
            except TaprError as error:  # such as a gallery whose files are away for now
                self._warn_once(f"saved searches: {error}")
            except Exception:  # the thread goes on: the next turn may succeed
                log.exception("saved searches cannot be checked")

    def _may_post(self, address: str) -> bool:
        self._deliveries = {name: thread for name, thread in self._deliveries.items() if thread.is_alive()}
        is_free = address not in self._deliveries and len(self._deliveries) < _MAX_DELIVERIES
        return is_free and not self._stop.is_set() and time.monotonic() >= self._paused.get(address, 0.0)

    def _not_posted(self, search: SavedSearch) -> list[Match]:
        return self._file.not_posted(search.name, int(time.time()) - _GIVEN_UP_SECONDS, _MAX_MATCHES)

    def _deliver(self, search: SavedSearch, address: str) -> None:
        try:
            while matches := self._not_posted(search):
                if not self._posted(search, matches):
                    self._paused[address] = time.monotonic() + _AGAIN_SECONDS
                    return
                self._file.set_posted(matches)
        except TaprError as error:  # such as a file that another process holds
            self._warn_once(f"saved searches: {error}")

    def _posted(self, search: SavedSearch, matches: list[Match]) -> bool:
        content = {"gallery": self._gallery, "search": search.name, "matches": [match.to_dict() for match in matches]}
        body = json.dumps(content).encode()
        headers = {"Content-Type": "application/json"}
        if self._secret is not None:
            headers[SIGNATURE] = "sha256=" + hmac.new(self._secret.encode(), body, hashlib.sha256).hexdigest()
        attempt, wait = 0, 0.0
        while not self._stop.wait(wait):
            attempt += 1
            status, after, reason = None, None, "no answer"
            try:
                status, after = self.receivers.post(search.webhook or "", body, headers)
                if 200 <= status < 300:
                    return True
                reason = f"status {status}"
            except NotFetched as error:
                reason = str(error)
            pause = self._retry.wait(attempt, status, after)
            if pause is None:
                self._warn_once(f"the webhook of the saved search {search.name!r} does not accept matches: {reason}")
                return False
            wait = pause
        return False

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            log.warning("%s", sentence)
