"""Every file of weights that tapr uses: what it is, how big, which bytes, under which licence, and where it can be had.

Shipped files lie inside the package. Fetched ones are kept in the user's cache (encoders/weights.py), once they have
been found to be the recorded bytes. A model is added or moved by changing a row here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tapr.encoders.weights import CLIP_B16_IMAGE_TOWER, WeightFile, is_present

_HERE = Path(__file__).parent
NONE_KNOWN = "none known"


@dataclass(frozen=True)
class ShippedFile:
    """A file inside the package, built or copied by the project."""

    name: str  # what it is, in lists
    path: Path
    sha256: str
    size: int  # bytes
    licence: str
    made_by: str  # how to make it again from what it was made of


CLIP_B16_TEXT_TOWER = ShippedFile(
    name="the text tower of clip-b16",
    path=_HERE / "data" / "clip_b16_text" / "text_tower.onnx",
    sha256="1d78ece09a71ee0a159cacce4f2489feaf77f28ee253682efd1c8133047672c2",
    size=23_899_712,
    licence="Apache-2.0 (of all-MiniLM-L6-v2)",
    made_by="tools/build_text_tower.py from the project's text_tower_fp16.safetensors",
)
CLIP_B16_TOKENIZER = ShippedFile(
    name="the words of the text tower and the captioner",
    path=CLIP_B16_TEXT_TOWER.path.with_name("tokenizer.json"),
    sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    size=466_247,
    licence="Apache-2.0 (of all-MiniLM-L6-v2)",
    made_by="a copy of all-MiniLM-L6-v2's tokenizer.json",
)
CAPTIONER = ShippedFile(
    name="the captioner of clip-b16",
    path=_HERE.parent / "captions" / "data" / "captioner.onnx",
    sha256="4d803d055b47c8395ca0376c3ebb705555263bad6a0349c7d76fd0272cfb3b67",
    size=11_737_154,
    licence="MIT (the project's own)",
    made_by="tools/build_captioner.py from the project's captioner_fp16.safetensors",
)
CAPTIONER_VOCABULARY = ShippedFile(
    name="the words that the captioner says",
    path=CAPTIONER.path.with_name("vocabulary.json"),
    sha256="086421b3403deec95becd5e9738e23256d0c2eef561c7b39ec503565273ae5a8",
    size=46_567,
    licence="MIT (the project's own)",
    made_by="tools/build_captioner.py from the project's vocab.json",
)

SHIPPED = (CLIP_B16_TEXT_TOWER, CLIP_B16_TOKENIZER, CAPTIONER, CAPTIONER_VOCABULARY)
FETCHED = (CLIP_B16_IMAGE_TOWER,)


def rows() -> list[dict[str, Any]]:
    """Return the table of `tapr models list`, JSON-ready: fetched files first."""
    return [*map(_fetched, FETCHED), *map(_shipped, SHIPPED)]


def _fetched(file: WeightFile) -> dict[str, Any]:
    first, *others = map(str, file.sources)
    return {
        "name": file.name,
        "path": str(file.path),
        "bytes": file.size,
        "sha256": file.sha256,
        "licence": file.licence,
        "source": first,
        "second_source": ", ".join(others) or NONE_KNOWN,
        "present": is_present(file),
    }


def _shipped(file: ShippedFile) -> dict[str, Any]:
    return {
        "name": file.name,
        "path": str(file.path),
        "bytes": file.size,
        "sha256": file.sha256,
        "licence": file.licence,
        "source": "inside tapr",
        "second_source": file.made_by,
        "present": file.path.is_file() and file.path.stat().st_size == file.size,
    }
