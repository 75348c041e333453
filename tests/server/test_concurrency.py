"""Slots of the thread pools: never more than allowed, and each is given back whatever happens."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tapr.gallery import Gallery
from tapr.server import concurrency
from tapr.server.concurrency import Busy, ConcurrencyLimit, TooSlow
from tapr.server.settings import Settings
from tests.refusals import refused
from tests.server.conftest import client_of


def test_the_concurrency_limit_admits_no_more_than_its_size() -> None:
    async def story() -> None:
        pool, go = ConcurrencyLimit("test", threads=1, queue=2, seconds=10), threading.Event()
        inside = [asyncio.create_task(pool.run(go.wait, 10)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="ask again"):
            await pool.run(go.wait, 10)
        go.set()
        assert all(await asyncio.gather(*inside))
        assert await pool.run(lambda: "in again") == "in again"
        pool.close()
        assert pool.inside == 0

    asyncio.run(story())


def test_a_thread_that_outlives_its_limit_still_counts() -> None:
    async def story() -> None:
        pool, go = ConcurrencyLimit("test", threads=1, queue=1, seconds=0.01), threading.Event()
        with pytest.raises(TooSlow):
            await pool.run(go.wait, 10)
        with pytest.raises(Busy):
            await pool.run(go.wait, 10)
        go.set()
        pool.close()
        assert pool.inside == 0

    asyncio.run(story())


def no_thread(self: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


def test_a_moment_without_threads_refuses_nobody(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each request of such a moment took a slot for good, and all later ones were answered 429."""
    with client_of(gallery, Settings(names=("testserver",), queue=3)) as client:
        with monkeypatch.context() as moment:
            moment.setattr(threading.Thread, "start", no_thread)
            during = [client.get("/api/gallery").status_code for _ in range(5)]
        after = [client.get("/api/gallery").status_code for _ in range(5)]
        assert "tapr_requests_inside 0\n" in client.get("/metrics").text
    assert during + after == [200] * 10


def test_work_that_no_pool_takes_leaves_no_slot_taken() -> None:
    async def story() -> None:
        pool = ConcurrencyLimit("test", threads=1, queue=1, seconds=10)
        pool.close()
        for _ in range(3):
            with refused("unavailable"):
                await pool.run(int)
        assert pool.inside == 0

    asyncio.run(story())


def test_a_pool_that_ends_nothing_fails_the_check_and_a_busy_one_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "_PROBE_SECONDS", 0.01)

    async def story() -> None:
        go = threading.Event()
        pool = ConcurrencyLimit("test", threads=1, queue=2, seconds=1000)
        asking = asyncio.create_task(pool.run(go.wait, 10))
        await asyncio.sleep(0)
        await pool.check(int)  # no answer in time, but the job inside has some left
        pool._seconds = -1.0
        with refused("unavailable"):
            await pool.check(int)
        go.set()
        await asking
        pool.close()

    asyncio.run(story())


def test_readyz_is_503_when_requests_are_never_finished(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said 200 while every request was answered 429."""
    monkeypatch.setattr(concurrency, "_PROBE_SECONDS", 0.01)
    with client_of(gallery, Settings(names=("testserver",), threads=1, queue=2, seconds=0.05)) as client:
        assert client.get("/readyz").status_code == 200
        stop, columns = threading.Event(), Gallery.columns

        def stuck(gallery: Gallery) -> Any:
            stop.wait(60)
            return columns(gallery)

        with monkeypatch.context() as patch:
            patch.setattr(Gallery, "columns", stuck)
            assert client.get("/api/gallery").json()["code"] == "too_slow"
            while client.get("/readyz").status_code == 200:
                pass
            reply = client.get("/readyz")
            assert (reply.status_code, reply.json()["code"]) == (503, "unavailable")
            stop.set()
        while client.get("/readyz").status_code != 200:
            pass
