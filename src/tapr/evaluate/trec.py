"""A run as TREC run files and qrels, which trec_eval, ir_measures and ranx read: others can check our metrics.

A name with white space is percent-encoded, because the format separates fields by it. Scores fall by 1 per rank: only
the order of a ranking is kept in a run directory. `METHOD.subset.run` ranks CIRR's subsets, which no qrels of its own
needs: the target is the only right answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from tapr.errors import BadInput
from tapr.evaluate.datasets import load_dataset
from tapr.evaluate.datasets.base import Dataset
from tapr.evaluate.run_files import StoredRun, read_ranking
from tapr.utils.files import write_atomically

QRELS, SUFFIX = "qrels.txt", ".run"


def dataset_of(run: StoredRun, data: Path | None = None) -> Dataset:
    """The dataset that a run was made on; `data`: its folder, where it is elsewhere now."""
    request = run.config["request"]
    folder = data or (Path(request["data"]) if request["data"] else None)
    return load_dataset(request["dataset"], folder, request["split"], request["gallery_protocol"])


def write_trec(run: StoredRun, out: Path, data: Path | None = None) -> list[Path]:
    """qrels.txt, where the answers are known, and one file per method."""
    rankings = {name: read_ranking(run.folder, name, run.macro) for name in run.methods()}
    files: dict[str, str] = {}
    asked: dict[str, None] = {}
    for name, ranks in rankings.items():
        if ranks is None:
            continue
        asked |= dict.fromkeys(ranks.top)
        files[f"{name}{SUFFIX}"] = "".join(_run_lines(ranks.top, name))
        if ranks.subset:
            files[f"{name}.subset{SUFFIX}"] = "".join(_run_lines(ranks.subset, name))
    if not files:
        raise BadInput(f"the run {str(run.folder)!r} has no ranking: nothing can be written of it")
    dataset = dataset_of(run, data)
    if not dataset.protocol.hidden:
        right = {query.id: query.right for query in dataset.queries if query.id in asked}
        lost = next((query_id for query_id in asked if query_id not in right), None)
        if lost is not None:
            raise BadInput(f"the dataset has no query {lost!r} of the run {str(run.folder)!r}: give its --data")
        files[QRELS] = "".join(_qrels_lines(right, run.config.get("left_out", {})))
    out.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        write_atomically(out / file, text.encode())
    return [out / file for file in files]


def _run_lines(tops: Mapping[str, Sequence[str]], tag: str) -> Iterator[str]:
    for query_id, names in tops.items():
        for rank, name in enumerate(names, 1):
            yield f"{_token(query_id)} Q0 {_token(name)} {rank} {len(names) - rank + 1} {_token(tag)}\n"


def _qrels_lines(right: Mapping[str, Iterable[str]], left_out: Mapping[str, str]) -> Iterator[str]:
    for query_id, names in right.items():
        for name in dict.fromkeys(names):
            if name not in left_out:
                yield f"{_token(query_id)} 0 {_token(name)} 1\n"


def _token(name: str) -> str:
    """Only what would break a line is encoded, and the sign of the encoding itself."""
    return "".join(quote(sign) if sign.isspace() or sign == "%" else sign for sign in name)
