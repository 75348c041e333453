"""Adds a second pass to a finished run: a vision language model marks the first pictures of each query again.

    python second_pass.py RUN --method tapr --top 10 --url http://127.0.0.1:8000/v1 --model eyes

After WISER's verifier (arXiv 2602.23029); the wording is ours. Answers are kept in RUN/second_pass, so that a stopped
pass goes on. The row has a mark and its cost in every table, because such systems see the gallery at every search.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Query
from tapr.evaluate.metrics import AnswerRanks, Outcome
from tapr.evaluate.run import MethodResult
from tapr.evaluate.run_files import METRICS, StoredRun, method_row, read_lines, read_ranking, write_json, write_ranking
from tapr.evaluate.submit import write_submissions
from tapr.evaluate.tables import write_tables
from tapr.evaluate.trec import dataset_of
from tapr.factorize.picture import data_url
from tapr.images.decode import read_bytes
from tapr.query.open_reference import shown

VERSION = "second_look_v2"
QUESTION = (
    "A person searches with the first picture and this change: {edit}\n"
    "Wanted is a picture in which the change is done, and in which all that the change does not touch is as in the "
    "first picture. The second picture is a candidate. Mark it with a whole number: 10 is exactly what is wanted, 5 "
    "has the change or the rest but not both, 0 has neither.\n"
    'Answer with JSON alone: {{"reason": "one short sentence", "mark": number}}'
)
TRIES = 3


def mark(client: httpx.Client, model: str, pictures: Sequence[str], edit: str) -> tuple[int, int]:
    """Return a candidate's mark and the number of requests; the mark is -1 if no answer is valid."""
    urls = [{"type": "image_url", "image_url": {"url": url}} for url in pictures]
    content: Any = [*urls, {"type": "text", "text": QUESTION.format(edit=edit)}]
    for number in range(1, TRIES + 1):
        question = {"model": model, "messages": [{"role": "user", "content": content}]}
        answer = client.post("chat/completions", json=question).raise_for_status()
        try:
            text = answer.json()["choices"][0]["message"]["content"]
            value = json.loads(text[text.index("{") : text.rindex("}") + 1])["mark"]
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        if type(value) is int and 0 <= value <= 10:
            return value, number
    return -1, TRIES


def look(client: httpx.Client, model: str, dataset: Dataset, query: Query, names: Sequence[str]) -> dict[str, Any]:
    """Return the first pictures in their new order; equal marks keep the first one, and so does a failed query."""
    first, *urls = (
        data_url(shown(read_bytes(dataset.pictures[name])), 768, 1_000_000) for name in (query.reference, *names)
    )
    marks, requests = zip(*(mark(client, model, (first, url), query.edit) for url in urls), strict=True)
    failed = min(marks) < 0
    order = range(len(names)) if failed else sorted(range(len(names)), key=lambda place: -marks[place])
    row = {"id": query.id, "model": model, "prompt": VERSION, "first": list(names)}
    return row | {"order": list(order), "requests": sum(requests), "failed": failed}


def moved(ranks: AnswerRanks, right: Sequence[str], top: Sequence[str]) -> AnswerRanks:
    """Return ranks in the new order; what is not among the stored pictures keeps its rank."""
    place = {name: float(number) for number, name in enumerate(top, 1)}
    return AnswerRanks(
        tuple(place.get(name, rank) for name, rank in zip(right, ranks.right, strict=True)), ranks.subset
    )


def add_row(run: StoredRun, dataset: Dataset, method: str, top: int, kept: Mapping[str, Mapping[str, Any]]) -> None:
    """Write the new ranking, its row of metrics, the submission of a hidden split, and the tables."""
    found = read_ranking(run.folder, method, run.macro)
    assert found is not None
    tops = {id_: [names[place] for place in kept[id_]["order"]] + names[top:] for id_, names in found.top.items()}
    right = {query.id: query.right for query in dataset.queries}
    outcome = found.outcome and Outcome(
        found.outcome.ids,
        tuple(
            tuple(moved(places, right[id_], tops[id_]) for places in ranks)
            for id_, ranks in zip(found.outcome.ids, found.outcome.ranks, strict=True)
        ),
        found.outcome.groups,
        found.outcome.macro,
    )
    first = {**run.metrics["methods"], **run.metrics["ranked"]}[method]
    ours = "; ".join(filter(None, (first["ours"], f"the wording of the second pass ({VERSION})")))
    name, label = f"{method}+verify{top}", f"{first['label']} + verify {top}"
    offline = first.get("offline", False)
    result = MethodResult(name, label, ours, outcome, tops, found.subset, 0.0, {}, offline)
    write_ranking(run.folder, result)
    if dataset.protocol.hidden:
        write_submissions(result, dataset, run.folder / "submissions")
    requests = sum(row["requests"] for row in kept.values())
    failed = sum(row["failed"] for row in kept.values())
    cost = f"multi-pass: {next(iter(kept.values()))['model']} looked at the first {top} pictures again, {requests:,} "
    cost += f"requests, {requests / len(tops):.1f} per query; {failed:,} queries keep the first order"
    best = run.outcome("tapr") if "tapr" in run.metrics["methods"] else None
    row = method_row(result, dataset.protocol, best) | {"multi_pass": cost}
    run.metrics["ranked" if outcome is None else "methods"][name] = row
    write_json(run.folder / METRICS, run.metrics)
    write_tables(run)


def main() -> None:
    parser = argparse.ArgumentParser(description="Add a second pass by a vision language model to a run of tapr eval.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--method", default="tapr")
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("--url", required=True, help="An OpenAI-compatible server.")
    parser.add_argument("--model", required=True, help="Its model, which must see pictures.")
    parser.add_argument("--data", type=Path, help="The benchmark's folder, if it is no longer where the run read it.")
    parser.add_argument("--concurrency", type=int, default=8)
    given = parser.parse_args()
    run = StoredRun.open(given.run)
    dataset = dataset_of(run, given.data).without(run.config.get("left_out", {}))
    found = read_ranking(run.folder, given.method, run.macro)
    if found is None or "+verify" in given.method:
        raise BadInput(f"the run has no first pass of the method {given.method!r}: it has {', '.join(run.methods())}")
    path = run.folder / "second_pass" / f"{given.method}+verify{given.top}.jsonl"
    path.parent.mkdir(exist_ok=True)
    firsts = {id_: names[: given.top] for id_, names in found.top.items()}
    kept = {row["id"]: row for row in read_lines(path) or [] if not row["failed"]}
    kept = {id_: row for id_, row in kept.items() if row["first"] == firsts[id_] and row["model"] == given.model}
    waiting = [query for query in dataset.queries if query.id in firsts and query.id not in kept]
    with (
        httpx.Client(base_url=given.url, timeout=120) as client,
        ThreadPoolExecutor(given.concurrency) as pool,
        path.open("a", encoding="utf-8") as file,
    ):
        rows = pool.map(lambda query: look(client, given.model, dataset, query, firsts[query.id]), waiting)
        for row in rows:
            kept[row["id"]] = row
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            file.flush()
    add_row(run, dataset, given.method, given.top, kept)
    print(f"{len(waiting)} queries were looked at again; the row is in {run.folder / 'tables.md'}")


if __name__ == "__main__":
    main()
