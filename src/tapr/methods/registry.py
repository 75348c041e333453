"""Methods by name, in the order of the tables."""

from __future__ import annotations

from collections.abc import Callable

from tapr.errors import BadInput
from tapr.methods.base import Method
from tapr.methods.baselines import ImageOnly, MaxSim, Sum, TargetAndImage, TargetOnly, TextOnly
from tapr.methods.basic import Basic
from tapr.methods.cirevl import Cirevl
from tapr.methods.cotmr import Cotmr
from tapr.methods.ldre import Ldre
from tapr.methods.osrcir import Osrcir
from tapr.methods.pdv import PdvOnCirevl, PdvOnLdre
from tapr.methods.sdr_cir import SdrCir
from tapr.methods.soft import SoftOnCirevl
from tapr.methods.stitch import Stitch
from tapr.methods.tapr import Tapr, TaprPaper
from tapr.score.compile import TAU
from tapr.spec import Weights
from tapr.stay import DEFAULT_SCORING, Scoring

_MAKERS: dict[str, Callable[[], Method]] = {
    "image": ImageOnly,
    "text": TextOnly,
    "sum": Sum,
    "target": TargetOnly,
    "target+image": TargetAndImage,
    "maxsim": MaxSim,
    "basic": Basic,
    "cirevl": Cirevl,
    "osrcir": Osrcir,
    "ldre": Ldre,
    "ldre-shared": lambda: Ldre(shared=True),
    "pdv-cirevl": PdvOnCirevl,
    "pdv-ldre": PdvOnLdre,
    "soft": SoftOnCirevl,
    "cotmr": Cotmr,
    "sdr-cir": SdrCir,
    "stitch": Stitch,
    "tapr-paper": TaprPaper,
    "tapr": Tapr,
}
METHODS = tuple(_MAKERS)
BASELINES = ("image", "text", "sum", "target+image")  # in every table: what no method should lose to


def make_method(
    name: str,
    dataset: str = "",
    weights: Weights | None = None,
    tau: float = TAU,
    scoring: Scoring = DEFAULT_SCORING,
) -> Method:
    """`dataset` chooses SDR-CIR's constants; `weights`, `tau` and `scoring` are TAPR's."""
    if name not in _MAKERS:
        raise BadInput(f"unknown method {name!r}: choose {', '.join(METHODS)} or all")
    if name == "sdr-cir":
        return SdrCir(dataset)
    if name == "tapr":
        return Tapr(weights, tau, scoring)
    if name == "tapr-paper":
        return TaprPaper(weights, tau)
    return _MAKERS[name]()
