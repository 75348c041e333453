"""Runs `tapr eval`: dataset, gallery, records, theta, methods, controls, run folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import tapr
from tapr.encoders.base import Encoder
from tapr.encoders.caching import CachingEncoder
from tapr.encoders.centred import SUFFIX
from tapr.encoders.extractors import EXTRACTORS
from tapr.encoders.registry import DEFAULT_ENCODER, card_name, known_models
from tapr.encoders.weights import home
from tapr.errors import BadInput
from tapr.evaluate.bank import (
    OFFLINE_CAPTIONS,
    BankRows,
    check_bank,
    check_pictures,
    composed_references,
    find_rows,
    open_bank,
    read_captions,
)
from tapr.evaluate.controls import variants
from tapr.evaluate.cut_outs import with_cut_outs
from tapr.evaluate.datasets import DATASETS, Dataset, load_dataset
from tapr.evaluate.datasets.base import read_ids
from tapr.evaluate.derived_records import RecordInputs, completed, factorized
from tapr.evaluate.diagnostics import solved_alone_sentences
from tapr.evaluate.fallback import blank_note
from tapr.evaluate.prepare import choose_theta, file_hashes, records_for, refuse_another_score
from tapr.evaluate.request import BANKS, BOTH, EXTRACTOR, FIT, Request
from tapr.evaluate.run import ControlResult, Experiment, Result, missing_records
from tapr.evaluate.run_files import StoredRun, code_sha256, write_json, write_run, write_specs
from tapr.evaluate.run_folder import RunFolder
from tapr.evaluate.steps import CONTROLS as CONTROL_UNIT
from tapr.evaluate.steps import RunContext, StageClock, describe_failure, run_methods, variants_of
from tapr.evaluate.submit import write_submissions
from tapr.evaluate.table import OFFLINE_NOTE
from tapr.evaluate.tables import write_tables
from tapr.evaluate.theta import Choice
from tapr.evaluate.tuning import choose, try_settings
from tapr.evaluate.wins_and_losses import best_other_method, write_page
from tapr.gallery import Gallery
from tapr.images.frame import FITS
from tapr.methods import BASELINES, METHODS, Features, Method, RecordSet, make_method
from tapr.methods.base import refuse_unread
from tapr.methods.tapr import Tapr, TaprPaper
from tapr.options import RankOptions
from tapr.query.scoring import PAPER, Scoring
from tapr.utils.progress import Progress

# what must be the same for a stopped run to go on
_IDENTITY = ("code_sha256", "protocol", "encoder", "bank", "records", "dataset_sha256", "tau", "score", "captions")


def evaluate(request: Request, progress: Progress) -> StoredRun:
    """Run everything and write the run folder; continue where an earlier run stopped."""
    _check(request)
    code = code_sha256()  # hashed first: the code may be edited during a long run
    dataset = _load(request)
    tuning = _tuning_runs(request, dataset, progress)
    with RunFolder.held(request.out) as folder:
        return _evaluate(request, dataset, folder, code, progress, tuning)


def _tuning_runs(request: Request, dataset: Dataset, progress: Progress) -> dict[str, StoredRun]:
    """The runs that choose the methods' constants; none where nothing is tuned, or where settings are tried here."""
    if request.tune is None or (request.tune == "" and dataset.protocol.tunable):
        return {}
    if request.tune:
        return {name: StoredRun.open(name) for name in request.tune.split(",")}
    split = DATASETS[request.dataset].development.get(dataset.protocol.split)
    if split is None:
        raise BadInput(
            f"{dataset.protocol.dataset} {dataset.protocol.split} has no development split of its own: make runs with "
            "--tune on other datasets' validation splits, and name them with --tune RUN,RUN"
        )
    out = request.out / "tuning"
    progress.say(f"constants are chosen on {split}, in {out}")
    asked = replace(request, split=split, queries=None, out=out, controls=(), theta="fixed", reference=None, page=False)
    return {str(out): evaluate(asked, progress)}


def _load(request: Request) -> Dataset:
    dataset = load_dataset(request.dataset, request.data, request.split, request.gallery_protocol)
    if request.shared_concept:
        dataset = dataset.with_concepts()
    if request.reference == BOTH and dataset.protocol.hidden:
        raise BadInput("the answers of this split are hidden: there is one ranking to hand in, kept or removed")
    if request.reference not in (None, BOTH):
        dataset = dataset.with_reference(request.reference == "kept")
    if request.queries is not None:
        dataset = dataset.only(read_ids(request.queries), request.queries.name)
    if request.limit is not None:
        dataset = dataset.limited(request.limit)
    if request.gallery is not None:
        return dataset
    return with_cut_outs(check_pictures(dataset, request.allow_missing), home() / "eval" / "cut_outs")


def _evaluate(
    request: Request,
    dataset: Dataset,
    folder: RunFolder,
    code: str,
    progress: Progress,
    tuning: Mapping[str, StoredRun],
) -> StoredRun:
    progress.say(f"the run is in {folder.path}: if it is stopped, the same command with --out {folder.path} goes on")
    clock = StageClock(folder, progress.say)
    path = request.gallery or default_bank(dataset, **request.bank_options)
    gallery = open_bank(dataset, path, **request.bank_options, progress=progress)
    dataset = check_bank(dataset, gallery, request.allow_missing)
    rows = find_rows(dataset, gallery)
    if request.captions is not None:
        rows = rows.with_captions(read_captions(request.captions), request.captions.name)
    clock.lap("bank")

    encoder = CachingEncoder(gallery.encoder)
    with encoder.cached_in(path.with_name(f"{path.name}.texts.npz")) as keep_texts:
        records = records_for(dataset, request.records, rows.sha256_of, request.wanted)
        experiment = _experiment(dataset, gallery, rows, encoder, records, request.options.scoring)
        source = RecordInputs(dataset, experiment.features, _kinds(request, dataset), progress.say)
        made = factorized(source, request.factorizer) if request.factorizer else completed(records, source)
        experiment = replace(experiment, records=made)
        clock.lap("records")
        config: dict[str, Any] = {"tapr": tapr.__version__, "code_sha256": code}
        config["protocol"] = dataset.protocol.to_dict()
        config |= _facts(request, experiment, gallery, rows)
        for name, run in tuning.items():
            refuse_another_score(name, run, experiment, request.options.tau)
        tuned = choose(list(tuning.values()), dataset.protocol.dataset, dataset.protocol.split) if tuning else None
        config["tuned"] = tuned.to_dict() if tuned else None
        folder.begin({name: config[name] for name in (*_IDENTITY, "tuned")} | {"theta asked for": request.theta})
        controls = request.control_names() if not dataset.protocol.hidden else ()
        if experiment.composed and (controls or request.theta in ("scaled", "grid")):
            raise BadInput(
                "controls and --theta scaled or grid need one whole reference per query, and this dataset has queries "
                "with several, or with a part of one: leave them out"
            )
        if controls and (reason := missing_records(Tapr(), experiment, request.needed(hidden=False))):
            raise BadInput(f"the controls need spec records of the queries (--records or --factorizer), but {reason}")
        known = folder.theta()
        choice, grid = known or choose_theta(
            request.theta, experiment, request.options.tau, request.needed(hidden=True)
        )
        folder.keep_theta(choice, grid)
        clock.lap("theta", known is not None)
        work = RunContext(experiment, choice, folder, clock, keep_texts, request.reference == BOTH)
        methods, result = _made(request, experiment, choice)
        _run_all(work, request, tuned.methods(methods) if tuned else methods, result, controls, gallery, progress)
        if request.tune == "" and not tuning:
            result.tuning.update(_try_settings(work, methods))

    write_specs(request.out, experiment)
    run = write_run(request.out, config | {"theta": choice.to_dict()}, result, dataset.protocol, grid)
    _write_views(run, request, experiment, gallery, result, choice, progress)
    return run


def _run_all(
    work: RunContext,
    request: Request,
    made: Mapping[str, Method],
    result: Result,
    controls: Sequence[str],
    gallery: Gallery,
    progress: Progress,
) -> None:
    experiment = work.experiment
    own = variants([name for name in controls if name not in BANKS], request.options.tau) if controls else []
    done = run_methods(work, made, result, own)
    if controls:
        try:
            if not done:
                result.controls.extend(variants_of(work, CONTROL_UNIT, own, lambda: experiment))
            for control in BANKS:
                if control in controls:
                    result.controls.extend(_other_banks(control, work, request, gallery, progress))
        except Exception as error:  # the methods' figures are there, and stay
            result.failed[CONTROL_UNIT] = describe_failure(request.out, CONTROL_UNIT, error)


def _try_settings(work: RunContext, made: Mapping[str, Method]) -> dict[str, Any]:
    """Try the settings of every method with constants, and keep them as each ends."""
    path = work.folder.path / "settings.json"
    tried: dict[str, Any] = json.loads(path.read_bytes()) if path.is_file() else {}
    for name, method in made.items():
        known = name in tried
        if not known and len(method.settings()) > 1:
            tried[name] = try_settings(method, work.experiment)
            work.keep_texts()
            write_json(path, tried)
        if name in tried:
            work.clock.lap(f"{len(tried[name]['settings'])} settings of {name}", known)
    return tried


def _made(request: Request, experiment: Experiment, choice: Choice) -> tuple[dict[str, Method], Result]:
    """The methods that can be run; and the result to be filled, which names the others."""
    names = _methods(request, experiment.dataset)
    asked = [name for name in request.method_names() if name in names]
    named = experiment.dataset.protocol.dataset
    made = {
        name: make_method(name, named, choice.weights, request.options.tau, request.options.scoring) for name in names
    }
    needed = request.needed(experiment.dataset.protocol.hidden)
    skipped = {name: reason for name, method in made.items() if (reason := missing_records(method, experiment, needed))}
    made = {name: method for name, method in made.items() if name not in skipped}
    if not any(name in made for name in asked):
        raise BadInput(f"no method could be run; {skipped[asked[0]]}")
    if "all" in request.methods:
        # what the encoder cannot do, and records of a model that saw the gallery, are missed only if asked for by name
        asked_for = (name for name in skipped if not (METHODS[name].composes or METHODS[name].multi_pass))
        skipped = {name: skipped[name] for name in asked_for} | METHODS.broken
    return made, Result([], [], skipped)


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
    variants([name for name in request.control_names() if name not in BANKS])


def _methods(request: Request, dataset: Dataset) -> tuple[str, ...]:
    """The requested methods and the baselines. If the answers are hidden there is no table, and no baselines."""
    asked = request.method_names()
    if request.options.scoring.rule == PAPER.rule and TaprPaper.name in asked and Tapr.name in asked:
        asked = tuple(name for name in asked if name != TaprPaper.name)  # the row TAPR is the paper's score already
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
    """Write tables, submissions and the page from the stored results."""
    write_tables(run)
    for one in result.methods:
        try:
            write_submissions(one, experiment.dataset, request.out / "submissions")
        except BadInput as error:  # pictures are missing: the server would refuse it
            progress.say(f"no submission of {one.name} is written: {error}")
    own = next((one for one in result.methods if one.name == "tapr"), None)
    other = best_other_method(result.methods, experiment.dataset.protocol.main)
    if request.page and own is not None and own.outcome is not None and other is not None:
        page = request.out / "wins_and_losses.html"
        offline = (OFFLINE_NOTE,) if own.offline or other.offline else ()
        about = (*solved_alone_sentences(run.metrics.get("alone", ())), *offline)
        write_page(page, experiment, gallery, own, other, choice.weights, request.options, about)


def default_bank(
    dataset: Dataset,
    encoder: str | None,
    extractor: str | None,
    fit: str | None = None,
    template: str | None = None,
    centre: bool | None = None,
) -> Path:
    """The folder of the bank: one per set of pictures, encoder and options."""
    listed = json.dumps([[name, os.path.realpath(path)] for name, path in dataset.pictures.items()])
    digest = hashlib.sha256(listed.encode()).hexdigest()[:10]
    model = card_name(encoder or DEFAULT_ENCODER).replace("/", "-").replace(":", "-")
    name = f"{dataset.protocol.dataset}-{digest}-{model}-{extractor or 'default'}"
    options = {"fit": fit, "template": template, "centre": centre or None}
    given = json.dumps({key: value for key, value in options.items() if value is not None}, sort_keys=True)
    if given != "{}":
        name += f"-{fit or 'options'}-{hashlib.sha256(given.encode()).hexdigest()[:6]}"
    return home() / "eval" / name


def _experiment(
    dataset: Dataset, gallery: Gallery, rows: BankRows, encoder: Encoder, records: RecordSet, scoring: Scoring
) -> Experiment:
    composed = composed_references(dataset, rows, gallery.card)
    made = (Features.of(encoder, gallery, rows.row_of, part.gallery) for part in dataset.parts)
    features = tuple(replace(one, composed=composed, captions=rows.captions, files=dataset.pictures) for one in made)
    offline = rows.captioned_by == OFFLINE_CAPTIONS
    return Experiment(dataset, features, records, scoring, offline)


def _other_banks(
    control: str, work: RunContext, request: Request, gallery: Gallery, progress: Progress
) -> list[ControlResult]:
    """TAPR on banks with the other extractors, or the other fits, which are built where they are not there yet."""
    experiment, card = work.experiment, gallery.card
    centred = gallery.manifest.image_mean is not None
    own = {EXTRACTOR: card.extractor.removesuffix(SUFFIX), FIT: card.fit}
    known = next((one.extractors for one in known_models() if one.name == card.name), tuple(EXTRACTORS))
    full, shared = (variants(["matched"], request.options.tau)[place] for place in (0, 3))
    found = []
    for value in known if control == EXTRACTOR else FITS:
        if value == own[control]:
            continue

        def other(value: str = value) -> Experiment:
            options: dict[str, Any] = {"encoder": card.name, **own, control: value}
            options |= {"template": card.template, "centre": centred} if centred or card.template != "{}" else {}
            if options[FIT] == FITS[0]:
                options[FIT] = None  # the default: a folder with plain options has a plain name
            path = default_bank(experiment.dataset, **options)
            progress.say(f"bank with the {control} {value}")
            bank = open_bank(experiment.dataset, path, **options, progress=progress)
            # phrases read the same whatever the bank, unless it is centred
            encoder = CachingEncoder(bank.encoder) if centred else experiment.features[0].encoder
            return _experiment(
                experiment.dataset,
                bank,
                find_rows(experiment.dataset, bank),
                encoder,
                experiment.records,
                experiment.scoring,
            )

        named = [replace(full, name=f"{control} {value}", control=control)]
        if control == EXTRACTOR:
            named.append(replace(shared, name=f"{control} {value}, shared read", control=control))
        found += variants_of(work, f"{control} {value}", named, other)
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
        "notes": [*dataset.notes, *blank_note(dataset), *experiment.records.notes, *_captions_note(request, rows)],
        "left_out": dict(dataset.left_out),
        "captions": None if request.captions is None else hashlib.sha256(request.captions.read_bytes()).hexdigest(),
    }


def _captions_note(request: Request, rows: BankRows) -> tuple[str, ...]:
    """Whose captions of the gallery's pictures are read, where a method reads any."""
    if rows.captions is None or not any(make_method(name).reads_captions for name in request.method_names()):
        return ()
    return (f"captions of the gallery's pictures: {rows.captioned_by}",)


def _plain(value: Any) -> Any:
    """A value that JSON can hold."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, RankOptions):
        return value.given
    return str(value) if isinstance(value, Path) else value
