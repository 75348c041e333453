"""Errors of SQLite: advice that loses data is given for a damaged file alone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapr import TaprError
from tapr.store import saved_searches
from tapr.store.connection import connect
from tapr.store.saved_searches import FILE, SavedSearch, SavedSearchFile

SEARCH = SavedSearch("reds", {"text": "red"}, 0.5, 1)
LOSES = ("delete", "restore", "into a new folder")


def full(path: Path | str) -> sqlite3.Connection:
    db = connect(path)
    db.execute("PRAGMA max_page_count = 1")  # as a full disk: SQLITE_FULL
    return db


def read_only(path: Path | str) -> sqlite3.Connection:
    db = connect(path)
    db.execute("PRAGMA query_only = ON")
    return db


def without_memory(path: Path | str) -> sqlite3.Connection:
    raise_memory = sqlite3.OperationalError("out of memory")
    raise_memory.sqlite_errorcode = sqlite3.SQLITE_NOMEM
    raise raise_memory


@pytest.mark.parametrize("broken", [full, read_only, without_memory])
def test_a_whole_file_is_not_to_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Callable[[Any], sqlite3.Connection]
) -> None:
    file = SavedSearchFile(tmp_path)
    file.save(SEARCH, [("reference", b"picture")], [])
    before = (tmp_path / FILE).read_bytes()
    monkeypatch.setattr(saved_searches, "connect", broken)
    with pytest.raises(TaprError, match=FILE) as caught:
        file.save(SavedSearch("blues", {}, 0.5, 2), [("reference", bytes(100_000))], [])
    monkeypatch.undo()
    assert not any(word in str(caught.value) for word in LOSES), str(caught.value)
    assert (tmp_path / FILE).read_bytes() == before
    assert file.all() == [SEARCH]


def test_a_damaged_file_is_to_be_restored(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"no database" * 1000)
    with pytest.raises(TaprError, match="restore"):
        SavedSearchFile(tmp_path).all()
