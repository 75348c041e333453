"""Several devices, here processes on the processor: the same gallery as one makes, and what a lost process costs."""

from __future__ import annotations

import hashlib
import os
import signal
from itertools import product
from pathlib import Path

import pytest
from click.testing import CliRunner

from tapr.cli.index import index
from tapr.encoders.fake import COLOURS, FakeEncoder
from tapr.encoders.registry import check_device
from tapr.errors import BadInput, TaprError
from tapr.gallery import Gallery
from tapr.index import devices
from tapr.index.devices import Devices, OnDevices
from tests.pictures import write_flags

FLAGS = [pair for pair in product(COLOURS, COLOURS) if pair[0] != pair[1]][:60]


def vectors(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.glob("*.npy"))}


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("one")
    write_flags(folder / "pictures", FLAGS)
    Gallery.build(folder / "gallery", folder / "pictures", "fake")
    return folder / "pictures", folder / "gallery"


def test_two_processes_make_the_gallery_that_one_makes(one: tuple[Path, Path], tmp_path: Path) -> None:
    pictures, expected = one
    gallery = Gallery.build(tmp_path / "gallery", pictures, "fake", device="cpu,cpu")
    assert gallery.report is not None
    assert gallery.report.encoded == len(FLAGS)
    assert vectors(tmp_path / "gallery") == vectors(expected)
    assert [entry.path for entry in gallery.entries(range(len(gallery)))] == [
        entry.path for entry in Gallery.open(expected).entries(range(len(FLAGS)))
    ]


def test_a_lost_process_is_said_and_the_next_run_goes_on(
    one: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, expected = one
    encode = OnDevices.encode_images
    asked = []

    def losing(self: OnDevices, prepared: object) -> object:
        asked.append(1)
        if len(asked) == 3:
            for process in self._processes:
                os.kill(process._process.pid, signal.SIGKILL)
        return encode(self, prepared)  # type: ignore[arg-type]

    monkeypatch.setattr(OnDevices, "encode_images", losing)
    monkeypatch.setattr("tapr.index.encode.COMMIT_SECONDS", 0.0)
    with pytest.raises(TaprError, match=r"the process that encodes on cpu ended \(code -9\), maybe for lack of memory"):
        Gallery.build(tmp_path / "gallery", pictures, "fake", device="cpu,cpu")
    monkeypatch.undo()
    gallery = Gallery.build(tmp_path / "gallery", pictures, "fake", device="cpu,cpu")
    assert len(gallery) == len(FLAGS)
    assert vectors(tmp_path / "gallery") == vectors(expected)


def test_a_device_that_the_encoder_does_not_have_is_refused(one: tuple[Path, Path], tmp_path: Path) -> None:
    pictures, _ = one
    with pytest.raises(BadInput, match="the encoder fake runs on the CPU only: leave the device 'cuda:7' out"):
        Gallery.build(tmp_path / "gallery", pictures, "fake", device="cpu,cuda:7")


def test_a_device_is_checked_also_where_nothing_is_new(one: tuple[Path, Path], tmp_path: Path) -> None:
    pictures, _ = one
    Gallery.build(tmp_path / "gallery", pictures, "fake")
    with pytest.raises(BadInput, match="the encoder fake runs on the CPU only: leave the device 'cuda:9' out"):
        Gallery.build(tmp_path / "gallery", pictures, device="cuda:9")
    done = Gallery.build(tmp_path / "gallery", pictures, device="cpu").report
    assert done is not None
    assert done.unchanged == len(FLAGS)


def test_an_open_clip_encoder_says_which_devices_there_are() -> None:
    pytest.importorskip("torch", reason="the extra 'openclip' is not installed")
    name = "open_clip:ViT-B-32/laion2b_s34b_b79k"
    check_device(name, "cpu")
    for device, sentence in (
        ("cuda:99", "torch sees no device 'cuda:99' here: choose cpu"),
        ("gpu", "unknown device 'gpu': choose cpu or cuda"),
        ("meta", "encoders do not run on 'meta'"),
    ):
        with pytest.raises(BadInput, match=sentence):
            check_device(name, device)


def test_devices_are_named_by_commas() -> None:
    assert Devices.parse("cuda:0, cuda:1").names == ("cuda:0", "cuda:1")
    with pytest.raises(BadInput, match="have an empty name"):
        Devices.parse("cuda:0,")


def test_all_means_every_gpu_that_is_visible(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "_gpus", lambda: ("cuda:0", "cuda:1", "cuda:2"))
    assert Devices.parse("all").names == ("cuda:0", "cuda:1", "cuda:2")


class BulkFake(FakeEncoder):
    """Takes bulks, as on a GPU."""

    bulk = 8

    def encode_bulk(self, prepared: object) -> object:
        return self.encode_images(prepared)  # type: ignore[arg-type]


def test_bulks_go_to_the_processes_as_they_are(one: tuple[Path, Path], tmp_path: Path) -> None:
    pictures, expected = one
    Gallery.build(tmp_path / "gallery", pictures, BulkFake(), device="cpu")
    assert vectors(tmp_path / "gallery") == vectors(expected)


def test_the_command_takes_devices_or_a_cluster(one: tuple[Path, Path], tmp_path: Path) -> None:
    pictures, expected = one
    folder = tmp_path / "gallery"
    asked = [str(pictures), "-g", str(folder), "--encoder", "fake", "--device", "cpu,cpu"]
    assert CliRunner().invoke(index, asked).exit_code == 0
    assert vectors(folder) == vectors(expected)
    refused = CliRunner().invoke(index, [*asked, "--ray", "auto"])
    assert "give one of them" in str(refused.exception)
