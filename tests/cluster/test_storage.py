"""A gallery on object storage: a real S3 server on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import tapr
from tapr import BadInput, Gallery
from tapr.cluster import deployment
from tapr.cluster.files import RemoteFiles, rows_of, small_files
from tapr.cluster.gallery import ClusterGallery
from tapr.cluster.index import WorkingCopy, index_on_ray
from tapr.errors import TaprError
from tapr.index.options import IndexOptions
from tapr.query.spec import EditSpec
from tapr.score.compile import compile_query
from tapr.search.kernels.choose import choose_kernel
from tapr.search.match import top_k_by_summaries
from tapr.search.topk import top_k_many
from tests.cluster.conftest import S3, S3_PORT, SmallCluster
from tests.cluster.galleries import build, content, said, write_pictures
from tests.cluster.test_group import actors

BUCKET = "s3://pictures"


@pytest.fixture(scope="module", autouse=True)
def s3() -> Iterator[None]:
    """moto's server in a process of its own; keys and endpoint come from the environment, as everywhere."""
    if find_spec("moto") is None or find_spec("s3fs") is None:
        pytest.skip("needs an S3 server: pip install 's3fs' 'moto[server]'")
    before = dict(os.environ)
    os.environ.update(S3)
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(S3_PORT)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{S3_PORT}/moto-api/data.json", timeout=1).close()
                break
            except OSError:
                assert time.monotonic() < deadline, "the S3 server did not start"
                time.sleep(0.1)
        RemoteFiles(BUCKET)._system.mkdir("pictures")
        yield
    finally:
        server.kill()
        server.wait()
        os.environ.clear()
        os.environ.update(before)


def upload(folder: Path, url: str) -> None:
    files = RemoteFiles(url)
    for path in folder.iterdir():
        if not path.name.startswith(".lock"):
            files.upload(path)


def test_a_gallery_is_read_by_pieces_of_its_files(tmp_path: Path) -> None:
    near = build(tmp_path)
    url = f"{BUCKET}/read"
    upload(near.path, url)
    copied = small_files(url)
    assert sorted(item.name for item in copied.folder.iterdir()) == ["catalog-1.sqlite", "manifest.json"]
    for kind in near.manifest.kinds():
        (found,) = rows_of(RemoteFiles(url), near.manifest, kind, 0, 5, 20)
        assert found.tobytes() == np.load(near.path / f"{kind}-0-00000.npy")[5:20].tobytes()
    with pytest.raises(TaprError, match="shorter than the"):
        rows_of(RemoteFiles(url), near.manifest, "global", 0, 5, near.row_count + 1)
    with pytest.raises(BadInput, match="is not a gallery"):
        small_files(f"{BUCKET}/nothing")


def test_groups_read_the_records_of_a_first_stage(tmp_path: Path) -> None:
    near = build(tmp_path, "fp16")
    Gallery.add_first_stage(near.path)
    near = Gallery.open(near.path, encoder=near.encoder)
    url = f"{BUCKET}/staged"
    upload(near.path, url)
    opened = deployment.OpenedGallery.at(url)
    assert opened.manifest == near.manifest
    remote = [actor._bank for actor in actors(near, 2, location=url)]
    for bank, local in zip(remote, actors(near, 2), strict=True):
        (found,), (wanted,) = bank.blocks(), local._bank.blocks()
        for name in ("outlines", "summaries", "pooled"):
            assert getattr(found, name).tobytes() == getattr(wanted, name).tobytes()
        query = compile_query(EditSpec("red", add=("blue",)), None, near.encoder)
        kernel = choose_kernel()
        (staged,), (full,) = top_k_by_summaries([query], bank, 3, kernel), top_k_many([query], bank, 3, kernel)
        assert staged.scores.tobytes() == full.scores.tobytes()


def test_a_run_publishes_nothing_if_another_has_published_meanwhile(tmp_path: Path) -> None:
    near, url = build(tmp_path), f"{BUCKET}/twice"
    upload(near.path, url)
    (tmp_path / "copy").mkdir()
    copy = WorkingCopy(url, tmp_path / "copy")
    assert content(copy.folder) == content(near.path)
    RemoteFiles(url).write("manifest.json", b"{}")
    with pytest.raises(TaprError, match="another index run has written"):
        copy.publish()


def test_index_and_search_on_object_storage(tmp_path: Path, small_cluster: SmallCluster) -> None:
    pictures, url = write_pictures(tmp_path / "pictures", 20), f"{BUCKET}/shop"
    near = Gallery.build(tmp_path / "near", pictures, "fake")
    asked = IndexOptions.of(images=pictures, encoder="fake")
    index_on_ray(small_cluster.address, url, asked, part_pictures=8)
    (tmp_path / "copy").mkdir()
    WorkingCopy(url, tmp_path / "copy")
    assert content(tmp_path / "copy") == content(near.path)
    deployment.start(small_cluster.ray, deployment.OpenedGallery.at(url), deployment.DeploymentOptions(2))
    far = ClusterGallery.open(url, address=small_cluster.address)
    question = {"spec": {"target": "red", "add": ["blue"]}, "k": 30}
    wanted = said(tapr.search(near, str(pictures / "003.png"), **question))  # type: ignore[arg-type]
    assert said(tapr.search(far, str(pictures / "003.png"), **question)) == wanted  # type: ignore[arg-type]
    deployment.stop(small_cluster.ray)
