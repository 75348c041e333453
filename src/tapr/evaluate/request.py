"""The options of a run of `tapr eval`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapr.evaluate.controls import CONTROLS
from tapr.evaluate.coverage import FOR_A_ROW, WHOLE
from tapr.methods import METHODS
from tapr.methods.records import RecordFilter
from tapr.options import DEFAULT_OPTIONS, RankOptions

BANKS = EXTRACTOR, FIT = "extractor", "fit"  # the controls that need banks of their own
BOTH = "both"  # the reference kept and removed, as two rows


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
    fit: str | None = None
    template: str | None = None
    centre: bool | None = None
    records: tuple[Path, ...] = ()
    records_model: str | None = None
    records_prompt: str | None = None
    factorizer: str | None = None
    theta: str = "fixed"
    tune: str | None = None  # constants: "" chosen on the development split, else by runs with commas between
    reference: str | None = None  # "kept", "removed" or BOTH; None: as the protocol says
    options: RankOptions = DEFAULT_OPTIONS  # of TAPR: tau, score, reference_weight, reference_features
    shared_concept: bool = False  # put CIRCO's shared concept into every edit
    limit: int | None = None
    queries: Path | None = None  # a file with the ids of those that are asked
    captions: Path | None = None  # a file with captions of the gallery's pictures; None: the bank's own
    allow_missing: bool = False
    coverage: float | None = None  # share of the queries that must have records; None: as evaluate/coverage.py says
    page: bool = True

    @property
    def wanted(self) -> RecordFilter:
        return RecordFilter(self.records_model or "", self.records_prompt or "")

    def needed(self, hidden: bool) -> float:
        """The share of the queries that must have records. `hidden`: for a submission, which says nothing of them."""
        if self.coverage is not None:
            return self.coverage
        return WHOLE if hidden else FOR_A_ROW

    def method_names(self) -> tuple[str, ...]:
        """`all` means every method that loads. A broken plugin does not stop the others."""
        return tuple(name for name, _ in METHODS.working()) if "all" in self.methods else self.methods

    def control_names(self) -> tuple[str, ...]:
        return (*CONTROLS, *BANKS) if "all" in self.controls else self.controls

    @property
    def bank_options(self) -> dict[str, Any]:
        """Return the options of a gallery that is built."""
        names = ("encoder", "extractor", "fit", "template", "centre")
        return {name: getattr(self, name) for name in names}
