"""An index run reads the manifest and walks the sources once, and every option goes unchanged to it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapr import Gallery
from tapr.cluster import index as ray_index
from tapr.cluster.gallery import ClusterGallery
from tapr.encoders.fake import FakeEncoder
from tapr.index.options import IndexOptions
from tapr.index.report import Report
from tapr.index.writer import Writer
from tapr.store.layout import Manifest
from tests.cli.terminal import run
from tests.pictures import SOME_FLAGS, write_flags
from tests.refusals import refused

VALUES: dict[str, Any] = {
    "images": ("/pictures",),
    "drop": ("/old",),
    "move": (("/there", "/here"),),
    "encoder": "fake",
    "precision": "int8",
    "extractor": "value",
    "fit": "pad",
    "template": "a photo of {}",
    "centre": True,
    "arithmetic": "float16",
    "columns": {"price": "number"},
    "captions": False,
    "exif": False,
    "device": "cpu,cpu",
    "first_stage": True,
    "rehash": True,
    "wait": 5.0,
}
ON_THE_COMMAND_LINE = {
    "images": ("/pictures",),
    "drop": ("--drop", "/old"),
    "move": ("--move", "/there", "/here"),
    "centre": ("--centre",),
    "columns": ("--column", "price=number"),
    "captions": ("--no-captions",),
    "exif": ("--no-exif",),
    "first_stage": ("--first-stage",),
    "rehash": ("--rehash",),
}


@pytest.fixture
def counted_calls(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    counts = {"manifest reads": 0, "walks": 0}

    def counting(what: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **named: Any) -> Any:
            counts[what] += 1
            return call(*arguments, **named)

        return counted

    monkeypatch.setattr(Manifest, "read", counting("manifest reads", Manifest.read))
    monkeypatch.setattr(os, "walk", counting("walks", os.walk))
    return counts


def test_a_first_run_walks_the_folder_once_and_reads_the_manifest_only_to_open_it(
    tmp_path: Path, counted_calls: dict[str, int]
) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    assert len(gallery) == len(SOME_FLAGS)
    assert counted_calls == {"manifest reads": 1, "walks": 1}  # the read opens the gallery that the run made
    counted_calls.update(dict.fromkeys(counted_calls, 0))
    Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    assert counted_calls == {"manifest reads": 2, "walks": 1}  # one before the run, one to open the gallery


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    write_flags(tmp_path / "p", SOME_FLAGS[:1])
    return Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())


@pytest.fixture
def handed_on(gallery: Gallery, monkeypatch: pytest.MonkeyPatch) -> list[IndexOptions]:
    """Options that reach the writer, which does nothing with them."""
    options: list[IndexOptions] = []

    def note(self: Writer, given: IndexOptions) -> Report:
        options.append(given)
        return Report()

    monkeypatch.setattr(Writer, "build", note)
    monkeypatch.setattr(Writer, "sync", note)
    return options


def test_every_option_has_a_value_to_be_tried_with() -> None:
    assert VALUES.keys() == IndexOptions.model_fields.keys()


@pytest.mark.parametrize("name", IndexOptions.model_fields)
def test_every_face_hands_an_option_to_the_writer(
    name: str, gallery: Gallery, handed_on: list[IndexOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    value = VALUES[name]
    monkeypatch.setattr(ray_index, "connect", lambda address: None)
    Gallery.build(gallery.path, **{name: value})
    gallery.sync(**{name: value})
    given = ON_THE_COMMAND_LINE.get(name, (f"--{name.replace('_', '-')}", str(value)))
    verb = "sources" if name in ("drop", "move") else "index"
    assert run(verb, "-g", gallery.path, *given).code == 0
    if verb == "index" and name != "device":  # which is for this machine alone
        assert run(verb, "-g", gallery.path, *given, "--ray", "auto").code == 0
    assert len(handed_on) >= 3
    assert [getattr(options, name) for options in handed_on] == [value] * len(handed_on)


def test_a_device_and_a_cluster_exclude_each_other(gallery: Gallery) -> None:
    with refused("conflicting_options", "--ray", "--device", option="device"):
        ray_index.index_on_ray("auto", gallery.path, IndexOptions.of(device="cpu"))


def test_a_gallery_on_a_cluster_refuses_writes_in_one_sentence() -> None:
    far = object.__new__(ClusterGallery)  # without a cluster
    for write in (
        lambda: far.put("a", b""),
        lambda: far.delete("a"),
        lambda: far.apply([]),
        far.sync,
        far.writer,
    ):
        with refused("bad_input", "tapr index -g GALLERY --ray ADDRESS"):
            write()
