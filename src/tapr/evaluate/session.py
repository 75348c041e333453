"""The whole of `tapr eval`: dataset, bank, records, theta, methods, controls, run directory."""

from __future__ import annotations

import hashlib
import json
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import tapr
from tapr.encoders.base import Encoder
from tapr.encoders.extractors import EXTRACTORS
from tapr.encoders.registry import DEFAULT_ENCODER, card_name, known_models
from tapr.encoders.remembering import RememberingEncoder
from tapr.encoders.weights import home
from tapr.errors import BadInput, TaprError
from tapr.evaluate.alone import sentences
from tapr.evaluate.bank import BankRows, check_bank, check_pictures, find_rows, open_bank
from tapr.evaluate.controls import CONTROLS, variants
from tapr.evaluate.datasets import Dataset, load_dataset
from tapr.evaluate.fallback import blank_note
from tapr.evaluate.offline import Source, completed, factorized
from tapr.evaluate.page import strongest_other, write_page
from tapr.evaluate.plots import write_plots
from tapr.evaluate.prepare import choose_theta, file_hashes, records_for
from tapr.evaluate.run import ControlResult, Result, Scene, lacking, run_controls, run_method, run_variants
from tapr.evaluate.store import StoredRun, code_sha256, write_ranking, write_run
from tapr.evaluate.submit import write_submissions
from tapr.evaluate.tables import offline_note, write_tables
from tapr.evaluate.theta import Choice
from tapr.gallery import Gallery
from tapr.gallery.progress import Progress
from tapr.methods import BASELINES, METHODS, Features, RecordSet, make_method
from tapr.methods.base import refuse_unread
from tapr.methods.tapr import Tapr
from tapr.score.compile import TAU, Looks
from tapr.stay import Rule, Scoring

EXTRACTOR = "extractor"  # the one control that needs banks of its own


@dataclass(frozen=True)
class Request:
    """What was asked for on the command line."""

    dataset: str
    out: Path
    data: Path | None = None
    split: str | None = None
    gallery_protocol: str | None = None
    methods: tuple[str, ...] = ("all",)
    baselines: bool = True  # added to the methods that were asked for
    controls: tuple[str, ...] = ()
    gallery: Path | None = None
    encoder: str | None = None
    extractor: str | None = None
    records: Path | None = None
    factorizer: str | None = None
    theta: str = "fixed"
    tau: float = TAU
    score: Rule | None = None
    stay: float | None = None
    looks: Looks | None = None
    limit: int | None = None
    allow_missing: bool = False
    plots: bool = True
    page: bool = True

    @property
    def scoring(self) -> Scoring:
        return Scoring.of(self.score, self.stay, self.looks)

    def method_names(self) -> tuple[str, ...]:
        """`all` are those that can be had: one package's broken method does not stop the others."""
        return tuple(name for name, _ in METHODS.working()) if "all" in self.methods else self.methods

    def control_names(self) -> tuple[str, ...]:
        return (*CONTROLS, EXTRACTOR) if "all" in self.controls else self.controls


class _Clock:
    def __init__(self, say: Callable[[str], None]) -> None:
        self.seconds: dict[str, float] = {}
        self._say, self._last = say, time.perf_counter()

    def lap(self, name: str) -> None:
        now = time.perf_counter()
        self.seconds[name] = round(now - self._last, 1)
        self._last = now
        self._say(f"{name}: {self.seconds[name]:.1f} s")


def evaluate(request: Request, progress: Progress) -> StoredRun:
    """Run all of it and write the run directory."""
    _check(request)
    code = code_sha256()  # before the long work, during which somebody may edit it
    clock = _Clock(progress.say)
    dataset = load_dataset(request.dataset, request.data, request.split, request.gallery_protocol)
    if request.limit is not None:
        dataset = dataset.limited(request.limit)
    if request.gallery is None:
        dataset = check_pictures(dataset, request.allow_missing)
    path = request.gallery or default_bank(dataset, request.encoder, request.extractor)
    gallery = open_bank(dataset, path, encoder=request.encoder, extractor=request.extractor, progress=progress)
    dataset = check_bank(dataset, gallery, request.allow_missing)
    rows = find_rows(dataset, gallery)
    clock.lap("bank")

    encoder = RememberingEncoder(gallery.encoder)
    with encoder.remembered_in(path.with_name(f"{path.name}.texts.npz")):
        records = records_for(dataset, request.records, rows.sha256_of)
        scene = _scene(dataset, gallery, rows, encoder, records, request.scoring)
        source = Source(dataset, scene.features, _kinds(request, dataset), progress.say)
        made = factorized(source, request.factorizer) if request.factorizer else completed(records, source)
        scene = replace(scene, records=made)
        clock.lap("records")
        controls = request.control_names() if not dataset.protocol.hidden else ()
        if controls and lacking(Tapr(), scene):
            raise BadInput("the controls need a spec record of the queries: give --records or --factorizer")
        choice, grid = choose_theta(request.theta, scene, request.tau)
        clock.lap("theta")
        result = _run_methods(request, scene, choice, clock)
        if controls:
            try:
                result.controls.extend(_controls(request, scene, choice, gallery, progress))
            except Exception as error:  # the methods' figures are there, and stay
                result.failed["controls"] = _failure(request.out, "controls", error)
            clock.lap("controls")

    facts = _facts(request, scene, gallery, rows, choice, clock)
    config = {"tapr": tapr.__version__, "code_sha256": code, "protocol": dataset.protocol.to_dict(), **facts}
    run = write_run(request.out, config, result, dataset.protocol, grid)
    _write_views(run, request, scene, gallery, result, choice, progress)
    return run


def _check(request: Request) -> None:
    """What can be refused before anything is encoded."""
    Scoring.of(request.score, request.stay, request.looks)  # refuses what makes no sense
    if request.records and request.factorizer:
        raise BadInput("give --records or --factorizer, not both")
    methods = [make_method(name) for name in request.method_names()]
    if not request.controls:  # they read all that TAPR reads
        given = {
            "theta": request.theta != "fixed",
            "tau": request.tau != TAU,
            "score": request.score is not None,
            "stay": request.stay is not None,
            "looks": request.looks is not None,
            "records": request.records is not None,
            "factorizer": request.factorizer is not None,
        }
        refuse_unread(methods, [name for name, value in given.items() if value])
    variants([name for name in request.control_names() if name != EXTRACTOR])


def _methods(request: Request, dataset: Dataset) -> tuple[str, ...]:
    """Every table has the simple baselines; where the answers are hidden there is no table."""
    asked = request.method_names()
    added = BASELINES if request.baselines and not dataset.protocol.hidden else ()
    return (*(name for name in added if name not in asked), *asked)


def _kinds(request: Request, dataset: Dataset) -> frozenset[str]:
    """Of the records that are read."""
    return frozenset(kind for name in _methods(request, dataset) for kind in make_method(name).kinds)


def _run_methods(request: Request, scene: Scene, choice: Choice, clock: _Clock) -> Result:
    """Each method's ranks are written as it ends; one that fails is named, and the others go on."""
    protocol, asked = scene.dataset.protocol, request.method_names()
    names = _methods(request, scene.dataset)
    made = {name: make_method(name, protocol.dataset, choice.weights, request.tau, request.scoring) for name in names}
    skipped = {name: reason for name, method in made.items() if (reason := lacking(method, scene))}
    if "all" in request.methods:
        skipped |= METHODS.broken
    if all(name in skipped for name in asked):
        raise BadInput(f"no method could be run; {skipped[asked[0]]}")
    result = Result([], [], skipped)
    for name, method in made.items():
        if name in skipped:
            continue
        try:
            found = run_method(method, scene)
        except Exception as error:  # whatever it is, it is this method's alone
            result.failed[name] = _failure(request.out, name, error)
        else:
            write_ranking(request.out, found)
            result.methods.append(found)
        clock.lap(f"method {name}")
    return result


def _failure(folder: Path, name: str, error: Exception) -> str:
    """One sentence; where it is none of ours, where in the code it happened is kept in a file."""
    if isinstance(error, TaprError):
        return str(error)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"failed-{name}.txt"
    path.write_text("".join(traceback.format_exception(error)), encoding="utf-8")
    return f"{type(error).__name__}: {error or 'no reason was given'} (more in {path.name})"


def _write_views(
    run: StoredRun,
    request: Request,
    scene: Scene,
    gallery: Gallery,
    result: Result,
    choice: Choice,
    progress: Progress,
) -> None:
    """Tables, submissions, plots and the page, from what the run directory holds."""
    write_tables(run)
    for one in result.methods:
        try:
            write_submissions(one, scene.dataset, request.out / "submissions")
        except BadInput as error:  # a gallery that is not whole: the server would refuse it
            progress.say(f"no submission of {one.name} is written: {error}")
    if request.plots:
        write_plots(run)
    own = next((one for one in result.methods if one.name == "tapr"), None)
    other = strongest_other(result.methods, scene.dataset.protocol.main)
    if request.page and own is not None and own.outcome is not None and other is not None:
        page = request.out / "wins_and_losses.html"
        about = (*sentences(run.metrics.get("alone", ())), *offline_note([own.offline or other.offline]))
        write_page(page, scene, gallery, own, other, choice.weights, request.tau, about)


def default_bank(dataset: Dataset, encoder: str | None, extractor: str | None) -> Path:
    """One place for one set of pictures, encoder and extractor."""
    listed = json.dumps([[name, os.path.realpath(path)] for name, path in dataset.pictures.items()])
    digest = hashlib.sha256(listed.encode()).hexdigest()[:10]
    model = card_name(encoder or DEFAULT_ENCODER).replace("/", "-").replace(":", "-")
    return home() / "eval" / f"{dataset.protocol.dataset}-{digest}-{model}-{extractor or 'default'}"


def _scene(
    dataset: Dataset, gallery: Gallery, rows: BankRows, encoder: Encoder, records: RecordSet, scoring: Scoring
) -> Scene:
    features = tuple(Features.of(encoder, gallery, rows.row_of, part.gallery) for part in dataset.parts)
    return Scene(dataset, features, records, scoring)


def _controls(
    request: Request, scene: Scene, choice: Choice, gallery: Gallery, progress: Progress
) -> list[ControlResult]:
    asked = request.control_names()
    results = run_controls([name for name in asked if name != EXTRACTOR], scene, choice, request.tau)
    if EXTRACTOR in asked:
        results += _extractors(request, scene, choice, gallery, progress)
    return results


def _extractors(
    request: Request, scene: Scene, choice: Choice, gallery: Gallery, progress: Progress
) -> list[ControlResult]:
    """TAPR on banks of the other extractors, which are built where they are not there yet."""
    own = gallery.card.extractor.removesuffix("+centred")
    known = next((one.extractors for one in known_models() if one.name == gallery.card.name), tuple(EXTRACTORS))
    found = []
    for extractor in known:
        if extractor == own:
            continue
        path = default_bank(scene.dataset, gallery.card.name, extractor)
        progress.say(f"bank with the extractor {extractor}")
        bank = open_bank(scene.dataset, path, encoder=gallery.card.name, extractor=extractor, progress=progress)
        # phrases read the same whatever the extractor, unless this bank is centred
        encoder = RememberingEncoder(bank.encoder) if own != gallery.card.extractor else scene.features[0].encoder
        other = _scene(scene.dataset, bank, find_rows(scene.dataset, bank), encoder, scene.records, scene.scoring)
        full, shared = (variants(["matched"], request.tau)[place] for place in (0, 3))
        named = [
            replace(full, name=f"extractor {extractor}", control=EXTRACTOR),
            replace(shared, name=f"extractor {extractor}, shared read", control=EXTRACTOR),
        ]
        found += run_variants(named, other, choice)
    return found


def _facts(
    request: Request, scene: Scene, gallery: Gallery, rows: BankRows, choice: Choice, clock: _Clock
) -> dict[str, Any]:
    dataset = scene.dataset
    return {
        "request": {name: str(value) if isinstance(value, Path) else value for name, value in asdict(request).items()},
        "encoder": gallery.card.to_dict(),
        "bank": {"sha256": rows.digest, "precision": gallery.precision, "pictures": len(rows.row_of)},
        "records": {"origin": scene.records.origin, "sha256": scene.records.digest()},
        "dataset_sha256": dataset.digest(),
        "annotations_sha256": file_hashes(dataset),
        "theta": choice.to_dict(),
        "tau": request.tau,
        "score": request.scoring.to_dict(),
        "queries": len(dataset.queries),
        "gallery_size": dataset.gallery_size,
        "notes": [*dataset.notes, *blank_note(dataset), *scene.records.notes],
        "left_out": dict(dataset.left_out),
        "seconds": clock.seconds,
    }
