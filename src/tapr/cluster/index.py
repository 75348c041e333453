"""Indexing on Ray: the nodes decode and encode parts of the pictures, and the calling process writes the gallery.

One process assigns the rows in picture order, so the gallery is byte for byte that of a single machine (if the
processors round alike). Finished parts stay beside the gallery until it is published. A lost node costs only its
unfinished parts; a lost run costs nothing finished.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tapr.cluster.connect import connect
from tapr.cluster.files import RemoteFiles, files_at, is_url
from tapr.cluster.staging import SUFFIX, Damaged, Part, StagedEncoder, StagedEvidence, StagedParts, StagedPicture, named
from tapr.encoders.base import Encoder, Evidence
from tapr.errors import BadInput, BadOption, TaprError
from tapr.gallery import Gallery
from tapr.index.captions import Describe, describer
from tapr.index.encode import BATCH, NOT_NUMBERS, encode_checked
from tapr.index.load import Loaded, load_in_order
from tapr.index.options import IndexOptions
from tapr.index.sources import Candidate
from tapr.index.writer import Writer
from tapr.store import layout
from tapr.store.checksums import FileDigest
from tapr.store.layout import Manifest
from tapr.store.lock import NAMES as LOCK_FILES
from tapr.store.own_encoder import load_own_encoder
from tapr.store.shards import parts_of
from tapr.utils.progress import Progress

PICTURES = 256  # pictures per part: a few seconds of work, 13 MB of vectors with clip-b16
_ON_GPU = ("open_clip:",)  # encoders that use a GPU if there is one
_NO_DIGEST = FileDigest(bytes=0, sha256="")  # placeholder: a job has no catalogue
_AHEAD = 2  # parts submitted per processor


@dataclass(frozen=True)
class Job:
    """The task to encode one part on one node."""

    staging: str
    name: str
    manifest: str  # JSON with everything that determines the vectors
    candidates: tuple[Candidate, ...]
    describe: bool


@dataclass(frozen=True)
class EncodedPart:
    name: str
    node: str
    unseen: tuple[str, ...]  # files that do not exist on this node


def encode_part(job: Job) -> EncodedPart:
    """The task that runs on a node."""
    encoder = _encoder(job.manifest)
    manifest = Manifest.model_validate_json(job.manifest)
    part = make_part(job.candidates, manifest, encoder, describer(encoder) if job.describe else None)
    files_at(job.staging).write(job.name, part.to_bytes())
    unseen = tuple(one.entry.path for one in part.seen if one.entry.size < 0)
    return EncodedPart(job.name, socket.gethostname(), unseen)


@lru_cache(maxsize=1)
def _encoder(manifest: str) -> Encoder:
    return load_own_encoder(Manifest.model_validate_json(manifest))


def make_part(candidates: Sequence[Candidate], manifest: Manifest, encoder: Encoder, describe: Describe | None) -> Part:
    seen: list[StagedPicture] = []
    made: list[dict[str, NDArray[Any]]] = []
    batch: list[Loaded] = []
    count = 0

    def encode() -> None:
        """Encode a batch as an index run does, including what it does with the vectors afterwards."""
        nonlocal count
        ready = [item for item in batch if item.pixels is not None]
        good: Iterator[bool] = iter(())
        captions: Iterator[str] = iter(())
        if ready:
            encoded = encode_checked(encoder, ready)
            evidence = encoded.evidence
            good, captions = iter(encoded.good), iter(describe(evidence) if describe and len(evidence) else ())
            made.append(parts_of(evidence, manifest))
        for item in batch:
            if item.pixels is None:
                seen.append(StagedPicture(item.entry, None, None))
            elif next(good):
                seen.append(StagedPicture(item.entry, count, next(captions, None)))
                count += 1
            else:
                seen.append(StagedPicture(replace(item.entry, failure=NOT_NUMBERS), None, None))
        batch.clear()

    for item in load_in_order(candidates, encoder):
        batch.append(item)
        if sum(one.pixels is not None for one in batch) == BATCH:
            encode()
    encode()
    kinds = manifest.vector_kinds().items()
    empty = {kind: np.zeros((0, *shape), dtype) for kind, (shape, dtype) in kinds}
    return Part(seen, {kind: np.concatenate([empty[kind], *(one[kind] for one in made)]) for kind in empty})


class RayEncoder:
    """An index.remote_encoder.RemoteEncoder that uses the nodes of a Ray cluster."""

    def __init__(self, ray: Any, staging: str, pictures: int = PICTURES) -> None:
        self._ray, self._staging, self._pictures = ray, staging, pictures
        self.staged = StagedParts(files_at(staging))

    devices = 1

    def check(self, manifest: Manifest) -> None:
        """The nodes load the encoder themselves."""

    def look(
        self, manifest: Manifest, encoder: Encoder, candidates: Sequence[Candidate], describe: bool
    ) -> tuple[Encoder, Iterator[Loaded], Describe]:
        staged_encoder = StagedEncoder(encoder, self.staged)

        def described(evidence: Evidence) -> Sequence[str]:
            assert isinstance(evidence, StagedEvidence)
            return evidence.captions

        return staged_encoder, self._items(manifest, candidates, describe, staged_encoder), described

    def _items(
        self, manifest: Manifest, candidates: Sequence[Candidate], describe: bool, encoder: StagedEncoder
    ) -> Iterator[Loaded]:
        # part names include a hash of everything that determines vectors and captions: parts of another encoder are not
        # found
        what = manifest.model_copy(update={"snapshot": 0, "counts": {}, "catalog": _NO_DIGEST}).model_dump_json()
        kind = hashlib.sha256(f"{what}{describe}".encode()).hexdigest()[:8]
        waiting = [one for one in candidates if self._place(one, kind) is None]
        jobs = deque(self._jobs(waiting, what, kind, describe))
        running: dict[Any, Job] = {}
        try:
            for candidate in candidates:
                place = self._place(candidate, kind)
                while place is None:
                    self._advance(jobs, running)
                    place = self._place(candidate, kind)
                    if place is None and not jobs and not running:  # the file changed while it was indexed
                        jobs.extend(self._jobs([candidate], what, kind, describe))
                        place = self._last(jobs, running, candidate)
                yield self._loaded(candidate, place, encoder, what, kind, describe)
        finally:
            for ref in running:
                self._ray.cancel(ref, force=False)

    def _jobs(self, candidates: Sequence[Candidate], what: str, kind: str, describe: bool) -> Iterator[Job]:
        for start in range(0, len(candidates), self._pictures):
            some = tuple(candidates[start : start + self._pictures])
            stats = repr([(one.path, *_stat(one.path)) for one in some])
            name = f"{kind}-{hashlib.sha256(stats.encode()).hexdigest()[:16]}{SUFFIX}"
            yield Job(self._staging, name, what, some, describe)

    def _advance(self, jobs: deque[Job], running: dict[Any, Job]) -> None:
        """Submit enough tasks to keep the nodes busy, and wait for one part."""
        processors = self._ray.cluster_resources().get("CPU", 1)
        while jobs and len(running) < max(2, _AHEAD * processors):
            job = jobs.popleft()
            running[self._remote(job)] = job
        ready, _ = self._ray.wait(list(running), num_returns=1)
        for ref in ready:
            running.pop(ref)
            self._finish(ref)

    def _last(self, jobs: deque[Job], running: dict[Any, Job], candidate: Candidate) -> tuple[str, int]:
        """Encode a file that keeps changing, and use it as it was read."""
        job = jobs[-1]
        while jobs or running:
            self._advance(jobs, running)
        return job.name, 0

    def _remote(self, job: Job) -> Any:
        on_gpu = json.loads(job.manifest)["encoder"]["name"].startswith(_ON_GPU)
        gpus = 1 if on_gpu and self._ray.cluster_resources().get("GPU") else 0
        # if a node is lost, Ray runs the task on another one, without limit
        task = self._ray.remote(encode_part).options(max_retries=-1, num_cpus=1, num_gpus=gpus)
        return task.remote(job)

    def _finish(self, ref: Any) -> None:
        try:
            done: EncodedPart = self._ray.get(ref)
        except TaprError as error:
            cause = getattr(error, "cause", None)
            raise (cause if isinstance(cause, TaprError) else error) from None
        except self._ray.exceptions.RayError as error:
            raise TaprError(f"a part could not be encoded: {str(error).strip().splitlines()[-1][:300]}") from None
        for path in done.unseen:
            if os.path.exists(path):
                files_at(self._staging).remove(done.name)
                raise TaprError(
                    f"the node {done.node} does not see {path}, which this machine does: "
                    "mount the pictures under the same path on every node"
                )
        self.staged.add(done.name)

    def _place(self, candidate: Candidate, kind: str) -> tuple[str, int] | None:
        place = self.staged.find(candidate.path, *_stat(candidate.path))
        return place if place is not None and place[0].startswith(kind) else None

    def _loaded(
        self, candidate: Candidate, place: tuple[str, int], encoder: StagedEncoder, what: str, kind: str, describe: bool
    ) -> Loaded:
        try:
            self.staged.part(place[0])
        except Damaged:  # a part from an earlier run is damaged
            job = Job(self._staging, place[0], what, self.staged.candidates(place[0]), describe)
            self._finish(self._remote(job))
        one = self.staged.seen(place)
        entry = named(one, candidate)
        return Loaded(entry) if one.place is None else Loaded(entry, encoder.token(place))


def _stat(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def index_on_ray(
    address: str,
    location: str | Path,
    options: IndexOptions,
    *,
    part_pictures: int = PICTURES,
    progress: Progress | None = None,
) -> Gallery:
    """Build a gallery with pictures that are encoded on a Ray cluster. `location` is a folder that every node sees, or
    a URL.
    """
    if part_pictures < 1:
        raise BadInput(f"a part must have 1 picture or more, not {part_pictures}")
    if options.device is not None:
        what = "--ray encodes on the nodes of a cluster, --device on this machine: give one of them"
        raise BadOption(what, "device", "conflicting_options")
    ray = connect(address)
    if not is_url(location):
        folder = Path(location).expanduser().resolve()
        on_ray = RayEncoder(ray, str(folder / layout.PARTS), part_pictures)
        gallery = Gallery.built(Writer(folder, progress=progress, remote_encoder=on_ray), options)
        on_ray.staged.clear()
        return gallery
    url = str(location).rstrip("/")
    with TemporaryDirectory(prefix="tapr-index-", ignore_cleanup_errors=True) as name:
        copy = WorkingCopy(url, Path(name))
        on_ray = RayEncoder(ray, f"{url}/{layout.PARTS}", part_pictures)
        gallery = Gallery.built(Writer(copy.folder, progress=progress, remote_encoder=on_ray), options)
        copy.publish()
        on_ray.staged.clear()
    return gallery


class WorkingCopy:
    """A local copy of a gallery on object storage for an index run. Changed files are uploaded at the end, the manifest
    last.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self._files, self.folder = RemoteFiles(url), folder
        self._before: dict[str, tuple[int, int]] = {}
        self._manifest: bytes | None = None
        for name in self._files.names():
            self._files.download(name, folder)
            self._before[name] = self._state(name)
            if name == layout.MANIFEST:
                self._manifest = (folder / name).read_bytes()

    def publish(self) -> None:
        if layout.MANIFEST in self._files.names() and self._files.read(layout.MANIFEST) != self._manifest:
            raise TaprError(f"another index run has written to {self._files.url} meanwhile: run tapr index again")
        names = [item.name for item in self.folder.iterdir() if item.is_file() and item.name not in LOCK_FILES]
        for name in sorted(names, key=lambda name: name == layout.MANIFEST):
            if self._before.get(name) != self._state(name):
                self._files.upload(self.folder / name)
        for name in set(self._before) - set(names):
            self._files.remove(name)

    def _state(self, name: str) -> tuple[int, int]:
        status = (self.folder / name).stat()
        return status.st_size, status.st_mtime_ns
