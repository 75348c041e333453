"""The extractors of local vectors, one row each. NumPy, ONNX and torch read this table and have no branch of their own.

Every extractor starts from the last transformer block's input and differs only in how it reads that block. A row says
which sides attend to which, whether the CLS token is among what is read, whether the residual and the FFN stay, and how
far the pull of a patch's neighbours reaches.

ClearCLIP's and NACLIP's authors let the patches attend to the CLS token too; here they do not, as in the measurements
by which `clearclip` became the default. All logits are divided by sqrt(head width).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tapr.errors import BadOption

Side = Literal["query", "key"]


@dataclass(frozen=True)
class Extractor:
    """How the last block is read. What the attentions read from the values is summed."""

    name: str
    attends: tuple[tuple[Side, Side], ...]  # softmax(first second^T), each; none: a patch reads its own value alone
    reads_cls: bool  # whether the CLS token is among what the patches attend to
    whole_block: bool  # whether the residual and the FFN stay
    neighbourhood: float = 0.0  # standard deviation, in patches, of a Gaussian added to the logits; 0: none
    origin: str = ""

    @property
    def as_trained(self) -> bool:
        """Return whether it is the block itself, so that the block's own output will do."""
        trained = self.attends == (("query", "key"),) and self.reads_cls and self.whole_block
        return trained and not self.neighbourhood


_QUERIES: tuple[Side, Side] = ("query", "query")
_KEYS: tuple[Side, Side] = ("key", "key")

EXTRACTORS: dict[str, Extractor] = {
    row.name: row
    for row in (
        Extractor("tokens", (("query", "key"),), True, True, origin='the literal reading of "patch tokens"'),
        Extractor("maskclip", (), False, True, origin="the last value path of MaskCLIP, Zhou et al., ECCV 2022"),
        Extractor("value", (), False, False, origin="the same value path by itself"),
        Extractor("sclip", (_QUERIES, _KEYS), True, True, origin="SCLIP, Wang et al., ECCV 2024"),
        Extractor("clearclip", (_QUERIES,), False, False, origin="ClearCLIP, Lan et al., ECCV 2024"),
        Extractor("naclip", (_KEYS,), False, False, 5.0, "NACLIP, Hajimiri et al., WACV 2025; 5 patches, as there"),
    )
}
DEFAULT_EXTRACTOR = "clearclip"


def extractor_of(name: str) -> Extractor:
    """Return the row of this name; an unknown name is refused. Rows are looked up here and nowhere else."""
    row = EXTRACTORS.get(name)
    if row is None:
        raise BadOption(f"unknown extractor {name!r}: choose one of {', '.join(EXTRACTORS)}", "extractor")
    return row
