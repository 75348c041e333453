"""Multi-pass methods: a run's ranking, whose first pictures a vision language model has looked at again.

The paper leaves such systems out of its comparison, because they ask the model at every search and see the gallery. So
their rows are marked in every table, with what they cost. What the model said is kept beside the run: a stopped pass
goes on, and a second one asks nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Query
from tapr.evaluate.metrics import AnswerRanks, Outcome
from tapr.evaluate.protocol import Protocol
from tapr.evaluate.run import MethodResult
from tapr.evaluate.run_files import (
    METRICS,
    StoredRanking,
    StoredRun,
    method_row,
    read_lines,
    read_ranking,
    write_json,
    write_ranking,
)
from tapr.evaluate.second_look import ORDER, VERSION, Look, look
from tapr.evaluate.submit import write_submissions
from tapr.evaluate.tables import write_tables
from tapr.evaluate.trec import dataset_of
from tapr.factorize.chat import Chat, require_openai
from tapr.factorize.event_loop import run_anywhere
from tapr.factorize.failures import NoSpec, ServerRefused, ServerUnreachable
from tapr.factorize.settings import LLMSettings
from tapr.factorize.usage import NOTHING_USED, Usage
from tapr.images.decode import read_bytes
from tapr.query.open_reference import shown

FOLDER = "second_pass"
Say = Callable[[str], None]


@dataclass(frozen=True)
class SecondPass:
    """Which ranking is looked at again, how, and how far down."""

    method: str  # of the run
    way: str
    top: int

    @property
    def name(self) -> str:
        return f"{self.method}+{self.way}{self.top}"

    def label(self, first: str) -> str:
        return f"{first} + {self.way} {self.top}"

    def requests(self, queries: int) -> int:
        """How many are sent at the least; a wrong answer is asked for again."""
        return queries * (1 if self.way == ORDER else self.top)


def add_second_pass(
    run: StoredRun, asked: SecondPass, settings: LLMSettings, data: Path | None = None, say: Say = lambda sentence: None
) -> StoredRun:
    """The run with one more row: the first pictures of a method's ranking in a new order."""
    require_openai()
    found = first_pass(run, asked)
    dataset = dataset_of(run, data)
    left_out = run.config.get("left_out", {})
    dataset = dataset.without(left_out) if left_out else dataset
    queries = {query.id: query for query in dataset.queries}
    lost = next((query_id for query_id in found.top if query_id not in queries), None)
    if lost is not None:
        raise BadInput(f"the dataset has no query {lost!r} of the run {str(run.folder)!r}: give its --data")
    kept = _Kept(run.folder / FOLDER / f"{asked.name}.jsonl", settings.model)
    waiting = [queries[query_id] for query_id, top in found.top.items() if kept.of(query_id, top[: asked.top]) is None]
    say(f"{asked.requests(len(waiting)):,} requests to {settings.model} for {len(waiting):,} queries")
    run_anywhere(_ask_all(waiting, found, dataset, asked, settings, kept, say))
    result, cost = _result(run, asked, found, queries, kept, settings)
    write_ranking(run.folder, result)
    if dataset.protocol.hidden:
        write_submissions(result, dataset, run.folder / "submissions")
    measured = _with_row(run, result, cost, dataset.protocol)
    write_json(run.folder / METRICS, measured)
    made = StoredRun(run.folder, run.config, measured)
    write_tables(made)
    return made


def first_pass(run: StoredRun, asked: SecondPass) -> StoredRanking:
    found = read_ranking(run.folder, asked.method, run.macro)
    if found is None:
        raise BadInput(
            f"the run {str(run.folder)!r} has no method {asked.method!r}: it has {', '.join(run.methods())}",
            code="unknown_name",
        )
    if asked.method in _rows(run) and _rows(run)[asked.method].get("multi_pass"):
        raise BadInput(f"{asked.method} is a second pass already: name the method that it started from")
    return found


async def _ask_all(
    queries: Sequence[Query],
    found: StoredRanking,
    dataset: Dataset,
    asked: SecondPass,
    settings: LLMSettings,
    kept: _Kept,
    say: Say,
) -> None:
    limit, done = asyncio.Semaphore(settings.concurrency), 0

    async def one(query: Query, chat: Chat) -> None:
        nonlocal done
        names = found.top[query.id][: asked.top]
        async with limit:
            own = chat.fresh(chat.dialect)
            files = [dataset.pictures[name] for name in (query.reference, *names)]
            pictures = await asyncio.to_thread(lambda: [shown(read_bytes(file)) for file in files])
            try:
                kept.put(query.id, names, await look(asked.way, own, settings, pictures[0], query.edit, pictures[1:]))
            except (ServerRefused, ServerUnreachable):
                raise  # the next query would fail in the same way
            except NoSpec as failure:
                kept.put(query.id, names, Look(tuple(range(len(names))), failure.usage), str(failure))
        done += 1
        if done * 10 // len(queries) > (done - 1) * 10 // len(queries):
            say(f"{done:,} of {len(queries):,} queries were looked at again")

    async with Chat(settings) as chat:
        tasks = [asyncio.create_task(one(query, chat)) for query in queries]
        try:
            await asyncio.gather(*tasks)
        finally:  # one failure of a kind that would repeat ends all
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Kept:
    """What the model said, one line per query. Another model, another order or a failed query is asked again."""

    def __init__(self, path: Path, model: str) -> None:
        self._path, self._model = path, model
        self._rows: dict[str, Mapping[str, Any]] = {row["id"]: row for row in read_lines(path) or []}

    def of(self, query_id: str, names: Sequence[str]) -> Mapping[str, Any] | None:
        row = self._rows.get(query_id)
        if row is None or row["failure"] or (row["model"], row["prompt"]) != (self._model, VERSION):
            return None
        return row if row["first"] == list(names) else None

    def row(self, query_id: str) -> Mapping[str, Any]:
        return self._rows[query_id]

    def put(self, query_id: str, names: Sequence[str], found: Look, failure: str = "") -> None:
        row: dict[str, Any] = {"id": query_id, "model": self._model, "prompt": VERSION, "first": list(names)}
        row |= {"order": list(found.order), "usage": found.usage.as_dict(), "failure": failure}
        self._rows[query_id] = row
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _result(
    run: StoredRun,
    asked: SecondPass,
    found: StoredRanking,
    queries: Mapping[str, Query],
    kept: _Kept,
    settings: LLMSettings,
) -> tuple[MethodResult, dict[str, Any]]:
    tops: dict[str, list[str]] = {}
    used, without = NOTHING_USED, dict[str, str]()
    for query_id, top in found.top.items():
        row = kept.row(query_id)
        tops[query_id] = [top[place] for place in row["order"]] + top[len(row["order"]) :]
        used += Usage(**row["usage"])
        if row["failure"]:
            without[query_id] = row["failure"]
    outcome = found.outcome and Outcome(
        found.outcome.ids,
        tuple(
            tuple(_moved(ranks, queries[query_id].right, tops[query_id]) for ranks in places)
            for query_id, places in zip(found.outcome.ids, found.outcome.ranks, strict=True)
        ),
        found.outcome.groups,
        found.outcome.macro,
    )
    first = _rows(run)[asked.method]
    ours = "; ".join(part for part in (first["ours"], f"the wording of the second pass ({VERSION})") if part)
    result = MethodResult(
        asked.name, asked.label(first["label"]), ours, outcome, tops, found.subset, 0.0, {}, first.get("offline", False)
    )
    cost = {"way": asked.way, "top": asked.top, "model": settings.model, **used.as_dict(), "queries": len(tops)}
    return result, cost | {"kept_first_order": without}


def _moved(ranks: AnswerRanks, right: Sequence[str], top: Sequence[str]) -> AnswerRanks:
    """Ranks in the new order. What is not among the stored first pictures keeps its rank."""
    place = {name: number for number, name in enumerate(top, 1)}
    moved = tuple(float(place.get(name, rank)) for name, rank in zip(right, ranks.right, strict=True))
    return AnswerRanks(moved, ranks.subset)


def _rows(run: StoredRun) -> dict[str, Any]:
    return {**run.metrics["methods"], **run.metrics.get("ranked", {})}


def _with_row(run: StoredRun, result: MethodResult, cost: Mapping[str, Any], protocol: Protocol) -> dict[str, Any]:
    measured: dict[str, Any] = json.loads(json.dumps(run.metrics))
    best = run.outcome("tapr") if "tapr" in run.metrics["methods"] else None
    row = method_row(result, protocol, best)
    measured["methods" if result.outcome is not None else "ranked"][result.name] = row | {"multi_pass": dict(cost)}
    return measured
