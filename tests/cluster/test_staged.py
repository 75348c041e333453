"""The first stage over groups, without Ray: the actors answer in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tapr
from tapr import Gallery
from tapr.cluster.actor import GroupActor
from tapr.cluster.chunked_calls import Call, cut, join
from tapr.cluster.gallery import ClusterGallery
from tapr.cluster.group import HOLDS, GroupAssignment, spans_of
from tapr.cluster.group_calls import LayoutChanged, RetryPolicy
from tapr.errors import Unavailable
from tapr.result import Ranking
from tapr.search import plan
from tapr.search.kernels.choose import choose_kernel
from tapr.search.match import top_k_by_summaries
from tapr.search.prefilter.candidates import Resemblance, resemblance
from tapr.search.stages import summaries
from tapr.search.topk import top_k_many
from tapr.store.block import PRECISIONS, Precision
from tests.cluster.galleries import build, said
from tests.cluster.test_group import actors, queries
from tests.refusals import refused

ASKED: dict[str, Any] = {"spec": {"target": "red and white", "add": ["red"], "remove": ["blue"]}, "k": 5}


class NearGroups:
    """Groups as the gallery sees them; calls and answers are pickled as for Ray."""

    def __init__(self, several: list[GroupActor]) -> None:
        self.actors, self.layout, self.count = several, 0, len(several)
        self.methods: list[str] = []
        self.before: Callable[[str], None] = lambda method: None  # what happens before a call
        self.lost: set[int] = set()

    def shape(self) -> tuple[int, int]:
        return self.layout, self.count

    def look(self) -> bool:
        return True

    def ask(
        self, method: str, calls: Mapping[int, Call], policy: RetryPolicy, layout_: int
    ) -> tuple[dict[int, Any], dict[int, str]]:
        self.before(method)
        if layout_ != self.layout:
            raise LayoutChanged
        self.methods.append(method)
        there = {group: call for group, call in calls.items() if group not in self.lost}
        answers = {
            group: join([self.actors[group].call(method, 1, call.shared, *cut(call.arguments))])
            for group, call in there.items()
        }
        return answers, {group: "it is gone" for group in calls if group not in there}


class NearCluster(ClusterGallery):
    def __init__(self, near: Gallery, several: list[GroupActor], *, partial: bool = False) -> None:
        self.path, self.manifest, self._catalog = near.path, near.manifest, near._catalog
        self._keys, self.rows = self._catalog.select()
        self._all_rows, self.partial, self.retry_policy = self.rows, partial, RetryPolicy()
        self.groups = NearGroups(several)
        self._groups = self.groups  # type: ignore[assignment]
        self._ray = SimpleNamespace(put=lambda value: value)
        self._opened = SimpleNamespace(snapshot=1)  # type: ignore[assignment]
        self.kernel_name, self._view, self._sent, self._full_searches = "near", None, {}, set()
        self.__dict__["encoder"] = near.encoder


def staged(folder: Path, precision: Precision = "fp16") -> Gallery:
    gallery = build(folder, precision)
    Gallery.add_first_stage(gallery.path)
    return Gallery.open(gallery.path, encoder=gallery.encoder)


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Gallery:
    return staged(tmp_path_factory.mktemp("staged"))


@pytest.fixture(autouse=True)
def few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "MIN_LEADERS", 3)
    monkeypatch.setattr(plan, "SMALLEST_BATCH", 4)


def proven(ranking: Ranking) -> dict[str, Any]:
    """What must be that of one machine: how many were read is not."""
    assert ranking.prefilter is not None
    assert ranking.prefilter.proven, ranking.prefilter
    return plain(ranking)


def plain(ranking: Ranking) -> dict[str, Any]:
    answer = said(ranking)
    del answer["prefilter"]
    answer["notes"] = [note for note in answer["notes"] if not note.startswith("exact:")]
    return answer


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kernel", ["numpy", None])
def test_the_answer_is_that_of_one_machine(tmp_path: Path, precision: Precision, kernel: str | None) -> None:
    near = staged(tmp_path, precision)
    for groups in (1, 2, 7):
        far = NearCluster(near, actors(near, groups, kernel))
        for k in (1, 5, 60, 200):
            right = top_k_many(queries(), near, k, choose_kernel(kernel))
            for limits in (("exact", None), (1000, None), (None, 1e9), (1000, 1e9)):
                for found, one in zip(far.top_k_many(queries(), k, *limits), right, strict=True):
                    assert found.proof is not None
                    assert found.proof.proven
                    assert found.proof.pictures == len(np.unique(near.rows))
                    assert found.positions.tolist() == one.positions.tolist()
                    assert found.scores.tobytes() == one.scores.tobytes()
                    assert found.exact == one.exact
                    assert (found.radii is None) == (one.radii is None)


def test_filters_pages_and_explanations_work_inside_it(near: Gallery) -> None:
    far = NearCluster(near, actors(near, 3))
    for where in (None, "id < '008.png'", "id contains '1'", "id = 'nobody'"):
        for more in ({}, {"k": 40}, {"k": 3, "offset": 4}, {"score": "adaptive"}):
            asked = {**ASKED, "where": where, "prefilter": "exact", **more}
            both = [tapr.search(gallery, "003.png", **asked) for gallery in (far, near)]
            if where == "id = 'nobody'":
                assert both[0].prefilter is both[1].prefilter is None
            else:
                assert proven(both[0]) == proven(both[1])
    assert "histograms" in far.groups.methods


@pytest.mark.parametrize("most", [1, 2, 7, 30, 61])
def test_no_more_is_read_than_was_asked_for(near: Gallery, most: int) -> None:
    far = NearCluster(near, actors(near, 3))
    for where in (None, "id < '030.png'"):
        ranking = tapr.search(far, "003.png", **ASKED, prefilter=most, where=where)
        assert ranking.prefilter is not None
        assert 1 <= ranking.prefilter.read <= most
        whole = {hit.id: hit.score for hit in tapr.search(near, "003.png", **{**ASKED, "k": 61}, where=where).hits}
        assert all(hit.score == whole[hit.id] for hit in ranking.hits)
        if ranking.prefilter.proven:
            assert plain(ranking) == plain(tapr.search(near, "003.png", **ASKED, where=where))


def test_when_the_time_is_over_the_candidates_are_the_answer(near: Gallery) -> None:
    far = NearCluster(near, actors(near, 3))
    for found in far.top_k_many(queries(), 1, None, 1e-6):
        assert found.proof is not None
        assert (len(found.positions), found.proof.read, found.proof.proven) == (1, 3 * 4, False)
        assert found.proof.read + found.proof.open == found.proof.pictures


def test_the_second_round_has_the_time_that_the_first_one_left(near: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    far, left = NearCluster(near, actors(near, 3)), list[float]()
    far.groups.before = lambda method: time.sleep(0.05 if method == "candidates" else 0)
    ask = far.groups.ask

    def noted(method: str, calls: Mapping[int, Call], *rest: Any) -> Any:
        if method == "top_k_by_stages":
            left.extend(call.arguments[4] for call in calls.values())
        return ask(method, calls, *rest)

    monkeypatch.setattr(far.groups, "ask", noted)
    assert proven(tapr.search(far, "003.png", **ASKED, budget_ms=60_000))
    assert len(left) == 3
    assert all(0 < ms <= 60_000 - 50 for ms in left)


def test_floors_from_others_spare_reads(near: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group for itself would have to prove its own best."""

    def by_row(*asked: Any) -> Resemblance:
        found = resemblance(*asked)
        return Resemblance(
            np.tile(-np.arange(found.promise.shape[1], dtype=np.float32), (len(found.promise), 1)), found.targets
        )

    monkeypatch.setattr(summaries, "resemblance", by_row)
    both = NearCluster(near, actors(near, 3)).top_k_many(queries(), 1, "exact")
    alone = [actor._batcher.run(top_k_by_summaries, queries(), actor._bank, 1) for actor in actors(near, 3)]
    spared = 0
    for number, found in enumerate(both):
        assert found.proof is not None
        read = sum(one[number].proof.read for one in alone)
        assert found.proof.read <= read
        spared += read - found.proof.read
    assert spared > 0


def test_it_is_used_unasked_where_it_pays(near: Gallery, monkeypatch: pytest.MonkeyPatch) -> None:
    first, full = ["candidates", "top_k_by_stages"], ["top_k"]
    compiled = NearCluster(near, actors(near, 2))
    if compiled.groups.actors[0]._batcher.kernel.name == "numpy":
        pytest.skip("needs the compiled kernel")
    numpy = NearCluster(near, [*actors(near, 2)[:1], *actors(near, 2, "numpy")[1:]])
    right = top_k_many(queries(), near, 3)

    def asked(far: NearCluster, *limits: Any) -> list[str]:
        far.groups.methods.clear()
        for found, one in zip(far.top_k_many(queries(), 3, *limits), right, strict=True):
            assert found.positions.tolist() == one.positions.tolist()
        return list(far.groups.methods)

    assert asked(compiled) == full, "too few pictures"
    with monkeypatch.context() as patched:
        patched.setattr(plan, "WORTH", 50)
        patched.setattr(plan, "MIN_PICTURES_PER_RESULT_BY_SUMMARIES", 10)
        assert asked(compiled) == first
        assert asked(numpy) == ["candidates", *full], "one group's kernel gains nothing by it"
        assert asked(numpy) == full, "and that is remembered"
        assert asked(numpy, "exact") == first
        assert compiled.top_k_many(queries(), 30)[0].proof is None, "too many wanted"
        assert compiled.select("id < '030.png'").top_k_many(queries(), 3)[0].proof is None


def test_a_gallery_without_one_refuses_the_options(tmp_path: Path) -> None:
    gallery = build(tmp_path)
    far = NearCluster(gallery, actors(gallery, 2))
    for limits in ({"prefilter": "exact"}, {"prefilter": 5}, {"budget_ms": 5.0}):
        with refused("no_prefilter", "tapr first-stage"):
            tapr.search(far, text="red", **limits)
    assert said(tapr.search(far, text="red")) == said(tapr.search(gallery, text="red"))


def test_without_a_group_the_others_do_not_claim_a_proof(near: Gallery) -> None:
    """Lost before the first round, or between the two: then its pictures made the floors."""

    def lose(far: NearCluster, group: int, when: str, method: str) -> None:
        if method == when:
            far.groups.lost.add(group)

    for when in ("candidates", "top_k_by_stages"):
        for group in range(3):
            far = NearCluster(near, actors(near, 3), partial=True)
            far.groups.before = partial(lose, far, group, when)
            ranking = tapr.search(far, text="red", k=12, prefilter="exact")
            start, stop = (getattr(spans_of(near.rows, near.row_count, 3)[group], name) for name in ("first", "last"))
            missing = set(near.ids()[start:stop])
            whole = [hit.id for hit in tapr.search(near, text="red", k=61).hits if hit.id not in missing]
            assert [hit.id for hit in ranking.hits] == whole[:12]
            assert ranking.prefilter is not None
            assert not ranking.prefilter.proven
            assert ranking.prefilter.open == len(np.unique(near.rows[start:stop]))
            assert ranking.prefilter.pictures == len(np.unique(near.rows))
            assert any(f"shard group {group + 1} of 3 is missing" in note for note in ranking.notes)
            far.partial = False
            with pytest.raises(Unavailable, match=f"shard group {group + 1} of 3 is missing"):
                tapr.search(far, text="red", prefilter="exact")


def test_both_rounds_are_repeated_if_the_groups_were_cut_anew_in_between(near: Gallery) -> None:
    far = NearCluster(near, actors(near, 3))

    def cut_anew(method: str) -> None:
        if method == "top_k_by_stages" and far.groups.layout == 0:
            far.groups.actors, far.groups.layout, far.groups.count = actors(near, 2), 1, 2

    far.groups.before = cut_anew
    asked = {**ASKED, "prefilter": "exact"}
    assert proven(tapr.search(far, "003.png", **asked)) == proven(tapr.search(near, "003.png", **asked))
    rounds = [method for method in far.groups.methods if method != "gather"]
    assert rounds == ["candidates", "candidates", "top_k_by_stages"]


def test_groups_hold_the_records_of_their_rows(near: Gallery) -> None:
    spans = spans_of(near.rows, near.row_count, 2)
    for actor, span, hold in zip(actors(near, 2), spans, HOLDS, strict=True):
        bank = actor._bank
        assert actor.assignment().hold == hold
        assert bank.subspaces is not None
        rows = np.arange(span.start, span.stop)
        expected = near.gather(rows)
        (found,) = bank.blocks()
        for name in ("outlines", "summaries", "pooled"):
            assert getattr(found, name).tobytes() == getattr(expected, name).tobytes()
        kinds = near.manifest.kinds()
        assert bank.bytes == len(rows) * sum(int(np.prod(shape)) * dtype.itemsize for shape, dtype in kinds.values())


def test_an_assignment_is_sent_in_chunks_that_survive_its_sender() -> None:
    """Ray cannot restart an actor whose arguments were too large to go with the call."""
    rows = np.arange(0, 400_000, 2)
    pieces = cut(
        GroupAssignment("/g", "{}", 0, spans_of(rows, 400_000, 1)[0], rows, "mapped", None, None, "0", subspaces=None)
    )
    assert max(map(len, pieces)) < 100_000
    assert join(pieces).rows.tolist() == rows.tolist()
