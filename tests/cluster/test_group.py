"""Groups and the merge, without Ray: any number of groups answers as the whole gallery does, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tapr import Gallery, __version__
from tapr.cluster.actor import EXPLAINED, ActorRetiring, GroupActor
from tapr.cluster.chunked_calls import cut
from tapr.cluster.group import HOLDS, GroupAssignment, spans_of
from tapr.cluster.merge import GroupResult, add, merge
from tapr.encoders.fake import FakeEncoder
from tapr.errors import TaprError
from tapr.query.spec import EditSpec
from tapr.score.compile import CompiledQuery, compile_query
from tapr.search.answer import explain_hits
from tapr.search.kernels.choose import choose_kernel
from tapr.search.reference_weight import histograms
from tapr.search.topk import top_k_many
from tapr.store.block import PRECISIONS, Precision
from tests.cluster.galleries import build


def actors(gallery: Gallery, groups: int, kernel: str | None = None, location: str = "") -> list[GroupActor]:
    spans = spans_of(gallery.rows, gallery.row_count, groups)
    return [
        GroupActor(
            f"group {number}",
            *cut(
                GroupAssignment(
                    location or str(gallery.path), gallery.manifest.model_dump_json(), 0, span,
                    GroupAssignment.compact_rows(gallery.rows, span), HOLDS[number % 2], kernel, None, __version__,
                    subspaces=gallery.subspaces,
                )
            ),
        )
        for number, span in enumerate(spans)
    ]  # fmt: skip


def queries() -> list[CompiledQuery]:
    encoder = FakeEncoder()
    specs = [
        EditSpec("red and blue", add=("yellow",), remove=("green",)),
        EditSpec("white"),
        EditSpec("a", add=("black",)),
    ]
    return [compile_query(spec, None, encoder) for spec in specs]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("groups", [1, 2, 3, 7])
def test_the_answer_is_the_whole_gallerys(tmp_path: Path, precision: Precision, groups: int) -> None:
    gallery = build(tmp_path, precision)
    spans = spans_of(gallery.rows, gallery.row_count, groups)
    is_held = actors(gallery, groups)
    for k in (1, 5, 60, 200):
        whole = top_k_many(queries(), gallery, k)
        answers = [actor.top_k(queries(), k) for actor in is_held]
        for number, one in enumerate(whole):
            found = [
                replace(a.found[number], positions=a.found[number].positions + span.first)
                for a, span in zip(answers, spans, strict=True)
            ]
            best = merge(found, k, [a.kernel for a in answers], one.exact)
            assert best.positions.tolist() == one.positions.tolist()
            assert best.scores.tobytes() == one.scores.tobytes()
            assert best.notes == one.notes
            if precision == "int8":
                assert best.breakdown is None, "decoded where the caller is"
                continue
            assert best.breakdown is not None
            assert len(best.breakdown) >= min(k, EXPLAINED, len(gallery))
            for size in (1, 4, len(best.breakdown)):
                known = best.positions[: min(size, len(best.breakdown))].tolist()
                hits = explain_hits(queries()[number], gallery, known, breakdown=best.first(len(known)).breakdown)
                assert hits == explain_hits(queries()[number], gallery, known)
            assert len(set(one.scores.tolist())) < len(one.scores) or k < 60, "there are ties"


def test_histograms_add_up_exactly(tmp_path: Path) -> None:
    gallery = build(tmp_path)
    targets = FakeEncoder().encode_texts(["red", "a blue flag"])
    counted = [actor.histograms(targets) for actor in actors(gallery, 3)]
    for number, whole in enumerate(histograms(targets, gallery, choose_kernel())):
        assert (add([one[number] for one in counted]) == whole).all()


def test_rows_are_gathered_over_shards(tmp_path: Path) -> None:
    gallery = build(tmp_path)
    small = gallery.manifest.model_copy(update={"shard_rows": 7})
    folder = tmp_path / "cut"
    folder.mkdir()
    for kind in small.kinds():  # the same rows in files of 7
        rows = np.load(gallery.path / f"{kind}-0-00000.npy")
        for shard, start in enumerate(range(0, len(rows), 7)):
            np.save(folder / f"{kind}-0-{shard:05d}.npy", rows[start : start + 7])
    for span in spans_of(gallery.rows, gallery.row_count, 3):
        rows = GroupAssignment.compact_rows(gallery.rows, span)
        assignment = GroupAssignment(
            str(folder), small.model_dump_json(), 0, span, rows, "mapped", None, None, __version__
        )
        wanted = np.array([5, 0, span.stop - span.start - 1, 9], np.int64)
        found = GroupActor("one", *cut(assignment)).gather(wanted)
        expected = gallery.gather(wanted + span.start)
        assert found["local"].tobytes() == np.asarray(expected.local_vectors).tobytes()
        assert found["errors"].tobytes() == np.asarray(expected.local_errors).tobytes()


def test_ties_keep_the_gallerys_order_over_groups() -> None:
    scores = np.array([0.5, 0.25], np.float32)
    late = GroupResult(np.array([7, 9]), scores, None, 3)
    early = GroupResult(np.array([2, 8]), scores, None, 4)
    best = merge([late, early], 3, ["numpy", "numpy"], True)
    assert best.positions.tolist() == [2, 7, 8]
    assert (best.rescored, best.kernel, best.notes) == (7, "numpy on 2 shard groups", ())
    mixed = merge([late, early], 3, ["numpy", "cpu-avx2"], True)
    assert "different kernels (cpu-avx2, numpy)" in mixed.notes[0]


def test_a_retiring_actor_refuses_calls_and_one_without_files_reports_it(tmp_path: Path) -> None:
    gallery = build(tmp_path)
    (actor,) = actors(gallery, 1)
    assert actor.leave(1.0)
    with pytest.raises(ActorRetiring):
        actor.top_k(queries(), 1)
    (gallery.path / "local-0-00000.npy").unlink()
    (lost,) = actors(gallery, 1)
    with pytest.raises(TaprError, match=r"cannot use local-0-00000.npy .*on the node"):
        lost.top_k(queries(), 1)
