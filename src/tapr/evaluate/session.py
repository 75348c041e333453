"""Runs `tapr eval`: dataset, gallery, records, theta, methods, controls, run folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import tapr
from tapr.encoders.base import Encoder
from tapr.encoders.caching import CachingEncoder
from tapr.encoders.extractors import EXTRACTORS
from tapr.encoders.registry import DEFAULT_ENCODER, card_name, known_models
from tapr.encoders.weights import home
from tapr.errors import BadInput
from tapr.evaluate.bank import BankRows, check_bank, check_pictures, find_rows, open_bank
from tapr.evaluate.controls import CONTROLS, variants
from tapr.evaluate.datasets import Dataset, load_dataset
from tapr.evaluate.derived_records import Source, completed, factorized
from tapr.evaluate.diagnostics import solved_alone_sentences
from tapr.evaluate.fallback import blank_note
from tapr.evaluate.plots import write_plots
from tapr.evaluate.prepare import choose_theta, file_hashes, records_for
from tapr.evaluate.run import ControlResult, Experiment, Result, missing_records
from tapr.evaluate.run_files import StoredRun, code_sha256, write_run, write_specs
from tapr.evaluate.run_folder import RunFolder
from tapr.evaluate.steps import CONTROLS as CONTROL_UNIT
from tapr.evaluate.steps import RunContext, StageClock, describe_failure, run_methods, variants_of
from tapr.evaluate.submit import write_submissions
from tapr.evaluate.table import offline_note
from tapr.evaluate.tables import write_tables
from tapr.evaluate.theta import Choice
from tapr.evaluate.wins_and_losses import best_other_method, write_page
from tapr.gallery import Gallery
from tapr.methods import BASELINES, METHODS, Features, Method, RecordSet, make_method
from tapr.methods.base import refuse_unread
from tapr.methods.records import RecordFilter
from tapr.methods.tapr import Tapr
from tapr.options import DEFAULT_OPTIONS, RankOptions
from tapr.query.scoring import Scoring
from tapr.utils.progress import Progress

EXTRACTOR = "extractor"  # the only control that needs galleries of its own
BOTH = "both"  # report with the reference kept and with it removed
# must be the same to continue a stopped run
_IDENTITY = ("code_sha256", "protocol", "encoder", "bank", "records", "dataset_sha256", "tau", "score")


@dataclass(frozen=True)
class Request:
    """The options of the command line."""

    dataset: str
    out: Path
    data: Path | None = None
    split: str | None = None
    gallery_protocol: str | None = None
    methods: tuple[str, ...] = ("all",)
    baselines: bool = True  # add the simple baselines to the requested methods
    controls: tuple[str, ...] = ()
    gallery: Path | None = None
    encoder: str | None = None
    extractor: str | None = None
    records: tuple[Path, ...] = ()
    records_model: str | None = None
    records_prompt: str | None = None
    factorizer: str | None = None
    theta: str = "fixed"
    reference: str | None = None  # "kept", "removed" or BOTH; None: as the protocol says
    options: RankOptions = DEFAULT_OPTIONS  # of TAPR: tau, score, reference_weight, reference_features
    limit: int | None = None
    allow_missing: bool = False
    plots: bool = True
    page: bool = True

    @property
    def wanted(self) -> RecordFilter:
        return RecordFilter(self.records_model or "", self.records_prompt or "")

    def method_names(self) -> tuple[str, ...]:
        """`all` means every method that loads. A broken plugin does not stop the others."""
        return tuple(name for name, _ in METHODS.working()) if "all" in self.methods else self.methods

    def control_names(self) -> tuple[str, ...]:
        return (*CONTROLS, EXTRACTOR) if "all" in self.controls else self.controls


def evaluate(request: Request, progress: Progress) -> StoredRun:
    """Run everything and write the run folder; continue where an earlier run stopped."""
    _check(request)
    code = code_sha256()  # hashed first: the code may be edited during a long run
    dataset = _load(request)
    with RunFolder.held(request.out) as folder:
        return _evaluate(request, dataset, folder, code, progress)


def _load(request: Request) -> Dataset:
    dataset = load_dataset(request.dataset, request.data, request.split, request.gallery_protocol)
    if request.reference == BOTH and dataset.protocol.hidden:
        raise BadInput("the answers of this split are hidden: there is one ranking to hand in, kept or removed")
    if request.reference not in (None, BOTH):
        dataset = dataset.with_reference(request.reference == "kept")
    if request.limit is not None:
        dataset = dataset.limited(request.limit)
    return check_pictures(dataset, request.allow_missing) if request.gallery is None else dataset


def _evaluate(request: Request, dataset: Dataset, folder: RunFolder, code: str, progress: Progress) -> StoredRun:
    progress.say(f"the run is in {folder.path}: if it is stopped, the same command with --out {folder.path} goes on")
    clock = StageClock(folder, progress.say)
    path = request.gallery or default_bank(dataset, request.encoder, request.extractor)
    gallery = open_bank(dataset, path, encoder=request.encoder, extractor=request.extractor, progress=progress)
    dataset = check_bank(dataset, gallery, request.allow_missing)
    rows = find_rows(dataset, gallery)
    clock.lap("bank")

    encoder = CachingEncoder(gallery.encoder)
    with encoder.cached_in(path.with_name(f"{path.name}.texts.npz")) as keep_texts:
        records = records_for(dataset, request.records, rows.sha256_of, request.wanted)
        experiment = _experiment(dataset, gallery, rows, encoder, records, request.options.scoring)
        source = Source(dataset, experiment.features, _kinds(request, dataset), progress.say)
        made = factorized(source, request.factorizer) if request.factorizer else completed(records, source)
        experiment = replace(experiment, records=made)
        clock.lap("records")
        config = {"tapr": tapr.__version__, "code_sha256": code, "protocol": dataset.protocol.to_dict()}
        config |= _facts(request, experiment, gallery, rows)
        folder.begin({name: config[name] for name in _IDENTITY} | {"theta asked for": request.theta})
        controls = request.control_names() if not dataset.protocol.hidden else ()
        if controls and missing_records(Tapr(), experiment):
            raise BadInput("the controls need a spec record of the queries: give --records or --factorizer")
        known = folder.theta()
        choice, grid = known or choose_theta(request.theta, experiment, request.options.tau)
        folder.keep_theta(choice, grid)
        clock.lap("theta", known is not None)
        work = RunContext(experiment, choice, folder, clock, keep_texts, request.reference == BOTH)
        result = _results(work, request, controls, gallery, progress)

    write_specs(request.out, experiment)
    run = write_run(request.out, config | {"theta": choice.to_dict()}, result, dataset.protocol, grid)
    _write_views(run, request, experiment, gallery, result, choice, progress)
    return run


def _results(
    work: RunContext, request: Request, controls: Sequence[str], gallery: Gallery, progress: Progress
) -> Result:
    experiment = work.experiment
    own = variants([name for name in controls if name != EXTRACTOR], request.options.tau) if controls else []
    made, result = _made(request, experiment, work.choice)
    done = run_methods(work, made, result, own)
    if controls:
        try:
            if not done:
                result.controls.extend(variants_of(work, CONTROL_UNIT, own, lambda: experiment))
            if EXTRACTOR in controls:
                result.controls.extend(_extractors(work, request, gallery, progress))
        except Exception as error:  # the results of the methods are kept
            result.failed[CONTROL_UNIT] = describe_failure(request.out, CONTROL_UNIT, error)
    return result


def _made(request: Request, experiment: Experiment, choice: Choice) -> tuple[dict[str, Method], Result]:
    """The methods that can run, and a result that names those that cannot."""
    asked, names = request.method_names(), _methods(request, experiment.dataset)
    named, options = experiment.dataset.protocol.dataset, request.options
    made = {name: make_method(name, named, choice.weights, options.tau, options.scoring) for name in names}
    skipped = {name: reason for name, method in made.items() if (reason := missing_records(method, experiment))}
    if "all" in request.methods:
        skipped |= METHODS.broken
    if all(name in skipped for name in asked):
        raise BadInput(f"no method could be run; {skipped[asked[0]]}")
    return {name: method for name, method in made.items() if name not in skipped}, Result([], [], skipped)


def _check(request: Request) -> None:
    """Refuse invalid requests before anything is encoded."""
    if request.records and request.factorizer:
        raise BadInput("give --records or --factorizer, not both")
    if (request.records_model or request.records_prompt) and not request.records:
        raise BadInput("--records-model and --records-prompt choose among records: give these with --records FILE")
    methods = [make_method(name) for name in request.method_names()]
    if not request.controls:  # controls use every option that TAPR uses
        given = {
            "theta": request.theta != "fixed",
            "records": bool(request.records),
            "factorizer": request.factorizer is not None,
        }
        refuse_unread(methods, [*request.options.given, *(name for name, value in given.items() if value)])
    variants([name for name in request.control_names() if name != EXTRACTOR])


def _methods(request: Request, dataset: Dataset) -> tuple[str, ...]:
    """The requested methods and the baselines. If the answers are hidden there is no table, and no baselines."""
    asked = request.method_names()
    added = BASELINES if request.baselines and not dataset.protocol.hidden else ()
    return (*(name for name in added if name not in asked), *asked)


def _kinds(request: Request, dataset: Dataset) -> frozenset[str]:
    """The kinds of record that the methods need."""
    return frozenset(kind for name in _methods(request, dataset) for kind in make_method(name).kinds)


def _write_views(
    run: StoredRun,
    request: Request,
    experiment: Experiment,
    gallery: Gallery,
    result: Result,
    choice: Choice,
    progress: Progress,
) -> None:
    """Write tables, submissions, plots and the page from the stored results."""
    write_tables(run)
    for one in result.methods:
        try:
            write_submissions(one, experiment.dataset, request.out / "submissions")
        except BadInput as error:  # pictures are missing: the server would refuse it
            progress.say(f"no submission of {one.name} is written: {error}")
    if request.plots:
        write_plots(run)
    own = next((one for one in result.methods if one.name == "tapr"), None)
    other = best_other_method(result.methods, experiment.dataset.protocol.main)
    if request.page and own is not None and own.outcome is not None and other is not None:
        page = request.out / "wins_and_losses.html"
        about = (*solved_alone_sentences(run.metrics.get("alone", ())), *offline_note([own.offline or other.offline]))
        write_page(page, experiment, gallery, own, other, choice.weights, request.options, about)


def default_bank(dataset: Dataset, encoder: str | None, extractor: str | None) -> Path:
    """The default folder of the gallery: one per set of pictures, encoder and extractor."""
    listed = json.dumps([[name, os.path.realpath(path)] for name, path in dataset.pictures.items()])
    digest = hashlib.sha256(listed.encode()).hexdigest()[:10]
    model = card_name(encoder or DEFAULT_ENCODER).replace("/", "-").replace(":", "-")
    return home() / "eval" / f"{dataset.protocol.dataset}-{digest}-{model}-{extractor or 'default'}"


def _experiment(
    dataset: Dataset, gallery: Gallery, rows: BankRows, encoder: Encoder, records: RecordSet, scoring: Scoring
) -> Experiment:
    features = tuple(Features.of(encoder, gallery, rows.row_of, part.gallery) for part in dataset.parts)
    return Experiment(dataset, features, records, scoring)


def _extractors(work: RunContext, request: Request, gallery: Gallery, progress: Progress) -> list[ControlResult]:
    """TAPR with the other extractors. Their galleries are built if needed."""
    experiment = work.experiment
    own = gallery.card.extractor.removesuffix("+centred")
    known = next((one.extractors for one in known_models() if one.name == gallery.card.name), tuple(EXTRACTORS))
    found = []
    for extractor in known:
        if extractor == own:
            continue

        def other(extractor: str = extractor) -> Experiment:
            path = default_bank(experiment.dataset, gallery.card.name, extractor)
            progress.say(f"bank with the extractor {extractor}")
            bank = open_bank(
                experiment.dataset, path, encoder=gallery.card.name, extractor=extractor, progress=progress
            )
            # text vectors do not depend on the extractor, unless this gallery is centred
            encoder = CachingEncoder(bank.encoder) if own != gallery.card.extractor else experiment.features[0].encoder
            return _experiment(
                experiment.dataset,
                bank,
                find_rows(experiment.dataset, bank),
                encoder,
                experiment.records,
                experiment.scoring,
            )

        full, shared = (variants(["matched"], request.options.tau)[place] for place in (0, 3))
        named = [
            replace(full, name=f"extractor {extractor}", control=EXTRACTOR),
            replace(shared, name=f"extractor {extractor}, shared read", control=EXTRACTOR),
        ]
        found += variants_of(work, f"extractor {extractor}", named, other)
    return found


def _facts(request: Request, experiment: Experiment, gallery: Gallery, rows: BankRows) -> dict[str, Any]:
    dataset = experiment.dataset
    return {
        "request": {one.name: _plain(getattr(request, one.name)) for one in fields(request)},
        "encoder": gallery.card.to_dict(),
        "bank": {"sha256": rows.digest, "precision": gallery.precision, "pictures": len(rows.row_of)},
        "records": {"origin": experiment.records.origin, "sha256": experiment.records.digest()},
        "dataset_sha256": dataset.digest(),
        "annotations_sha256": file_hashes(dataset),
        "tau": request.options.tau,
        "score": request.options.scoring.to_dict(),
        "queries": len(dataset.queries),
        "gallery_size": dataset.gallery_size,
        "notes": [*dataset.notes, *blank_note(dataset), *experiment.records.notes],
        "left_out": dict(dataset.left_out),
    }


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, RankOptions):
        return value.given
    return str(value) if isinstance(value, Path) else value
