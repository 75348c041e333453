"""Indexing on a real cluster: the gallery that one machine makes, byte for byte, also when a node is killed."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

import pytest

from tapr import Gallery
from tapr.cluster.index import index_on_ray
from tapr.cluster.staging import SUFFIX
from tapr.encoders.clip_onnx import ClipOnnxEncoder
from tapr.index.options import IndexOptions
from tapr.store.layout import PARTS
from tests.cluster.conftest import SmallCluster
from tests.cluster.galleries import content, write_pictures


def test_a_worker_that_is_killed_costs_only_its_unfinished_parts(
    small_cluster: SmallCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pictures = write_pictures(tmp_path / "pictures", 40, side=900)  # decoding them takes a while
    parts = tmp_path / "far" / PARTS
    events: dict[str, float] = {}
    written: dict[str, int] = {}

    def kill() -> None:
        while not written:
            time.sleep(0.01)
            written.update({item.name: item.stat().st_mtime_ns for item in parts.glob(f"*{SUFFIX}")})
        small_cluster.kill(small_cluster.workers[0])
        events["killed"] = time.monotonic()

    killer = Thread(target=kill)
    killer.start()
    kept: dict[str, int] = {}

    class Watch:
        def say(self, sentence: str) -> None: ...
        def start(self, total: int, what: str) -> None: ...
        def advance(self, done: int) -> None:
            kept.update({item.name: item.stat().st_mtime_ns for item in parts.glob(f"*{SUFFIX}")})

    far = index_on_ray(
        small_cluster.address,
        tmp_path / "far",
        IndexOptions.of(images=pictures, encoder="fake", precision="both"),
        part_pictures=2,
        progress=Watch(),
    )
    ended = time.monotonic()
    killer.join()
    small_cluster.add()
    assert events["killed"] < ended, "the worker was killed while the run went on"
    assert {name: kept[name] for name in written} == written, "what was finished was not made again"
    near = Gallery.build(tmp_path / "near", pictures, "fake", "both")
    assert content(tmp_path / "near") == content(tmp_path / "far")
    assert len(near) == len(far)
    with capsys.disabled():
        print(
            f"\n[cluster] indexing ended {ended - events['killed']:.1f} s after a worker was killed; nothing was lost"
        )


def test_a_run_that_was_stopped_goes_on_with_the_parts_that_are_there(
    small_cluster: SmallCluster, tmp_path: Path
) -> None:
    pictures = write_pictures(tmp_path / "pictures", 20)

    class Stop:
        def say(self, sentence: str) -> None: ...
        def start(self, total: int, what: str) -> None: ...
        def advance(self, done: int) -> None:
            parts = tmp_path / "far" / PARTS  # phrases are encoded before there are any
            if parts.is_dir() and any(parts.iterdir()):
                raise KeyboardInterrupt

    def run(**options: object) -> Gallery:
        asked = IndexOptions.of(images=pictures, encoder="fake")
        return index_on_ray(small_cluster.address, tmp_path / "far", asked, **options)  # type: ignore[arg-type]

    with pytest.raises(KeyboardInterrupt):
        run(part_pictures=4, progress=Stop())
    left = {item.name: item.stat().st_mtime_ns for item in (tmp_path / "far" / PARTS).iterdir()}
    assert left
    names: list[str] = []

    class Watch(Stop):
        def advance(self, done: int) -> None:
            names[:] = [item.name for item in (tmp_path / "far" / PARTS).iterdir()]
            for name in set(names) & set(left):
                assert (tmp_path / "far" / PARTS / name).stat().st_mtime_ns == left[name]

    run(part_pictures=9, progress=Watch())  # cut in another way: what is there is used all the same
    assert set(left) <= set(names)
    assert not (tmp_path / "far" / PARTS).exists(), "the parts go when the gallery is published"
    Gallery.build(tmp_path / "near", pictures, "fake")
    assert content(tmp_path / "near") == content(tmp_path / "far")
    # and an update: new pictures, gone ones
    (pictures / "000.png").unlink()
    (pictures / "new.png").write_bytes((pictures / "001.png").read_bytes() + b" ")
    run()
    Gallery.build(tmp_path / "near", pictures, "fake")
    assert content(tmp_path / "near") == content(tmp_path / "far")


def test_the_real_encoder_gives_the_bytes_of_one_machine(
    small_cluster: SmallCluster, tmp_path: Path, clip: ClipOnnxEncoder
) -> None:
    """Parts cut the pictures into other batches than one machine does: no bit may depend on that."""
    pictures = write_pictures(tmp_path / "pictures", 6, side=224)
    asked = IndexOptions.of(images=pictures, encoder="clip-b16", precision="both")
    index_on_ray(small_cluster.address, tmp_path / "far", asked, part_pictures=4)
    Gallery.build(tmp_path / "near", pictures, clip, "both")
    assert content(tmp_path / "near") == content(tmp_path / "far")
