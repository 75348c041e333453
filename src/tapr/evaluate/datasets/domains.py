"""Domain conversion (FREEDOM): the same class in another domain, such as a photograph's object as a painting.

The authors' files (NikosEfth/freedom): data/{minidn,nico}/{query,database}_files.csv and data/{ltll,imagenet_r}/
full_files.csv, lines of "path domain class". Every query picture is asked for each other domain; right are the
database's pictures of its class and that domain. LTLL and ImageNet-R have one list, whose pictures are queries and
database at once: a query's own picture is ranked too, as in the authors' code. ImageNet-R's list is written by their
set_dataset.py.
"""

from __future__ import annotations

from pathlib import Path

from tapr.errors import BadInput
from tapr.evaluate.datasets.base import Dataset, Part, Query, choose_split, find_file
from tapr.evaluate.datasets.row import DatasetRow
from tapr.evaluate.metrics import Metric, metrics
from tapr.evaluate.protocol import Protocol
from tapr.utils.lines import lines_of

# the domains, and the words that the authors ask with where these differ
_WORDS = {
    "minidn": {"clipart": "clipart", "painting": "painting", "real": "photo", "sketch": "sketch"},
    "nico": {name: name for name in ("autumn", "grass", "outdoor", "rock", "water")} | {"dim": "dimlight"},
    "ltll": {"New": "Today", "Old": "Archive"},
    "imagenet_r": {"real": "photo"} | {name: name for name in ("cartoon", "origami", "toy", "sculpture")},
}
_ONE_LIST = ("ltll", "imagenet_r")


def load(data: Path, split: str | None = None) -> Dataset:
    split = choose_split(split, tuple(_WORDS), "domain conversion")
    words = _WORDS[split]
    asked, stored = (find_file(data, f"{name}_files.csv", f"{split}/{name}_files.csv", f"data/{split}/{name}_files.csv")
                     for name in (("full",) * 2 if split in _ONE_LIST else ("query", "database")))  # fmt: skip
    members: dict[tuple[str, str], list[str]] = {}  # domain, class -> pictures
    gallery: dict[str, None] = {}
    for path, domain, kind in _rows(stored, words):
        members.setdefault((domain, kind), []).append(path)
        gallery[path] = None
    queries = []
    for number, (path, source, kind) in enumerate(_rows(asked, words)):
        for target in words:
            right = members.get((target, kind), [])
            if target != source and right:
                group = f"{words[source]} to {words[target]}"
                queries.append(Query(f"{number}-{target}", path, words[target], tuple(right), groups=(group,)))
    if not queries:
        raise BadInput(f"no query of {asked} has an answer in {stored}")
    protocol = Protocol(
        dataset="domain conversion",
        split=split,
        gallery=f"the database of {split}, {len(gallery):,} pictures",
        keep_reference=True,
        edit_text="the name of the wanted domain",
        metrics=metrics("tAP@all", "mAP@10", "Hit@1", "Hit@10"),
        main=Metric.parse("tAP@all"),
        grouped=metrics("tAP@all"),
        macro=True,
        tunable=False,
    )
    names = dict.fromkeys((*gallery, *(query.reference for query in queries)))
    return Dataset(
        protocol,
        (Part("all", tuple(gallery), tuple(queries)),),
        {name: data / name for name in names},
        tuple(dict.fromkeys((asked, stored))),
    )


def _rows(path: Path, words: dict[str, str]) -> list[tuple[str, str, str]]:
    rows = []
    for number, line in enumerate(lines_of(path.read_text(encoding="utf-8")), 1):
        fields = line.split()
        if len(fields) != 3 or fields[1] not in words:
            raise BadInput(f"{path}, line {number}: a line is path domain class, the domain one of {', '.join(words)}")
        rows.append((fields[0], fields[1], fields[2]))
    return rows


ROWS = (
    DatasetRow(
        "domains",
        "Domain conversion (FREEDOM): MiniDomainNet, NICO++, LTLL, ImageNet-R; average precision by pair of domains.",
        lambda data, split, gallery: load(data, split),
        titles=("domain conversion",),
        splits="minidn (default), nico, ltll or imagenet_r.",
        order=53,
    ),
)
