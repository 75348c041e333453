"""Constants are chosen by one rule for all methods, on other queries than those they are reported on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tapr.errors import BadInput
from tapr.evaluate.run import Experiment, run_method
from tapr.evaluate.run_files import StoredRun
from tapr.evaluate.tuning import choose, try_settings
from tapr.methods import METHODS, RecordSet, make_method
from tapr.methods.record_kinds import derive
from tapr.query.scoring import PAPER, Scoring
from tapr.query.spec import EditSpec
from tests.evaluate.scenes import SPECS, random_scene
from tests.evaluate.test_report import invoke


def experiment(scoring: Scoring = PAPER, *, tunable: bool = True) -> Experiment:
    """Every method has its records."""
    scene = random_scene(scoring=scoring, tunable=tunable)
    made = {
        query.id: derive(EditSpec.from_dict(dict(spec)), query.edit, "what is seen")
        for query, spec in zip(scene.dataset.queries, SPECS, strict=True)
    }
    told = [replace(one, captions={int(row): ("a word",) for row in one.bank.rows}) for one in scene.features]
    return replace(scene, records=RecordSet(made, "made up"), features=tuple(told))


@pytest.mark.parametrize("name", [name for name, row in METHODS.working() if not row.composes])
def test_the_figures_of_settings_are_those_of_the_method_with_them(name: str) -> None:
    where = experiment(Scoring("fixed"))
    method = make_method(name, scoring=where.scoring)
    tried = try_settings(method, where)
    settings = tried["settings"]
    assert len(settings) <= 126  # the published one, and 125 at most
    assert all(one != two for place, one in enumerate(settings) for two in settings[:place])
    for place in {0, len(settings) // 2, len(settings) - 1}:
        outcome = run_method(method.with_constants(settings[place]), where).outcome
        assert outcome is not None
        assert tried["values"][place] == pytest.approx(100 * outcome.mean(where.dataset.protocol.main), abs=1e-6)


def test_changed_constants_change_the_scores_and_leave_the_method_as_it_was() -> None:
    where = experiment()
    queries = where.dataset.queries
    for name in ("sum", "target+image", "sdr-cir", "pdv-cirevl", "cotmr", "soft", "stitch", "tapr"):
        method = make_method(name)
        before = method.score(queries, where.records, where.features[0])
        changed = method.with_constants(method.settings()[-1])
        assert not np.allclose(changed.score(queries, where.records, where.features[0]), before)
        np.testing.assert_array_equal(method.score(queries, where.records, where.features[0]), before)


def test_nothing_is_tried_on_a_test_split() -> None:
    with pytest.raises(BadInput, match="is a test split"):
        try_settings(make_method("sum"), experiment(tunable=False))


def stored(folder: str, split: str, values: list[float], dataset: str = "D") -> StoredRun:
    settings: list[dict[str, Any]] = [{"w": 1}, {"w": 2}, {"w": 3}]
    protocol = {"dataset": dataset, "split": split, "main": "mAP@10"}
    return StoredRun(Path(folder), {"protocol": protocol}, {"tuning": {"m": {"settings": settings, "values": values}}})


def test_the_split_itself_has_no_vote() -> None:
    own, other = stored("own", "val", [1, 2, 9]), stored("other", "val", [5, 9, 1], "E")
    third = stored("third", "val", [9, 8, 1], "F")
    assert choose([own, other], "D", "val").constants == {"m": {"w": 2}}  # left out
    assert choose([own], "D", "test").constants == {"m": {"w": 3}}
    both = choose([own, other, third], "D", "val")
    assert both.constants == {"m": {"w": 2}}  # 5/9 + 1, 1 + 8/9, ...
    assert both.how == "chosen on E val and F val by mAP@10"
    with pytest.raises(BadInput, match="never chosen on D val itself"):
        choose([own], "D", "val")
    equal = stored("equal", "val", [4, 4, 4], "E")
    assert choose([equal], "D", "val").constants == {"m": {"w": 1}}  # the published one
    with pytest.raises(BadInput, match="tried no settings"):
        choose([StoredRun(Path("x"), equal.config, {})], "D", "val")


def test_one_command_gives_published_and_tuned_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("emoji", reason="EmojiCIR needs the extra `eval`")
    monkeypatch.setattr("tapr.evaluate.session.home", lambda: tmp_path / "home")
    asked = ("emoji", "--split", "mini", "--encoder", "fake", "--limit", "40", "--no-page")
    methods = ("--method", "cotmr", "--method", "cirevl", "--method", "tapr")
    invoke(*asked, *methods, "--tune", "--out", tmp_path / "run")
    run, tried = StoredRun.open(tmp_path / "run"), StoredRun.open(tmp_path / "run" / "tuning").metrics["tuning"]
    rows = run.metrics["methods"]
    for name in ("sum", "target+image", "cotmr", "tapr"):
        best = tried[name]["settings"][int(np.argmax(tried[name]["values"]))]
        assert run.config["tuned"]["constants"][name] == best
        assert rows[f"{name}-tuned"]["label"] == f"{rows[name]['label']}, tuned"
        assert "chosen on EmojiCIR val by mAP@10" in rows[f"{name}-tuned"]["ours"]
    assert "cirevl-tuned" not in rows  # it has no constants
    assert list(rows).index("cotmr-tuned") == list(rows).index("cotmr") + 1
    # the tuned rows are compared with TAPR tuned alike
    minus = rows["cotmr-tuned"]["tapr_minus_this"]["value"]
    assert minus == pytest.approx(rows["tapr-tuned"]["mAP@10"] - rows["cotmr-tuned"]["mAP@10"])
    chosen = ("--method", "cotmr", "--tune", tmp_path / "run" / "tuning", "--out", tmp_path / "again")
    again = json.loads(invoke(*asked, *chosen, "--json").stdout)
    assert again["metrics"]["methods"]["cotmr-tuned"]["mAP@10"] == rows["cotmr-tuned"]["mAP@10"]


def test_a_dataset_without_a_development_split_says_what_to_do(tmp_path: Path) -> None:
    from tests.evaluate import made_up

    data = made_up.lasco(tmp_path / "lasco")
    with pytest.raises(BadInput, match="no development split of its own"):
        invoke("lasco", "--data", data, "--split", "val", "--tune", "--allow-missing", "--out", tmp_path / "run")
