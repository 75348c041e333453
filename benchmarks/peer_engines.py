"""Search engines that find candidates for an exact score, each with the settings that its makers advise.

An engine reads one of three forms of a picture. `global`: the global vector. `pooled`: [global vector, mean of local
vectors], of length 1. `local`: all local vectors. Its ids are positions in the gallery.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tapr.gallery import Gallery
from tapr.score.compile import CompiledQuery
from tapr.search.kernels.row_blocks import distinct, pieces_of
from tapr.types import Float32

Form = Literal["global", "pooled", "local"]
Find = Callable[[Float32, int], NDArray[np.int64]]  # (w,), for local vectors (n, d); how many -> positions
_BATCH = 2048  # pictures that are read at a time
_PER_LIST = 64  # pictures that k-means looks at for each of its lists; FAISS asks for 39 or more


@dataclass(frozen=True, eq=False)
class Pictures:
    """Those that an engine is to hold, in gallery order, and their vectors."""

    gallery: Gallery
    pooled: NDArray[np.float16]  # (N, 2 d): [global vector, mean of local vectors], a mapped file

    @classmethod
    def of(cls, gallery: Gallery, path: Path) -> Pictures:
        """Pools the local vectors into `path`, where that was not done before."""
        if not path.exists():
            new = path.with_suffix(".new")
            pooled = np.lib.format.open_memmap(new, "w+", np.float16, (len(gallery), 2 * gallery.card.dim))
            for start, wholes, locals_ in _read(gallery):
                means = locals_.mean(axis=1, dtype=np.float32)
                pooled[start : start + len(wholes)] = np.concatenate([wholes, means.astype(np.float16)], axis=1)
            pooled.flush()
            new.rename(path)
        return cls(gallery, np.load(path, mmap_mode="r"))

    def __len__(self) -> int:
        return len(self.pooled)

    def lots(self, form: Form) -> Iterator[tuple[int, NDArray[Any]]]:
        """Position of the first, and vectors: (B, w) in float32, local ones (B, M, d) as stored."""
        if form == "local":
            for start, _, locals_ in _read(self.gallery):
                yield start, locals_
        else:
            for start in range(0, len(self), _BATCH):
                yield start, self._as(form, slice(start, start + _BATCH))

    def some(self, form: Form, count: int) -> Float32:
        """About so many, evenly spaced."""
        return self._as(form, slice(None, None, max(1, len(self) // count)))

    def query_like(self, form: Form, position: int) -> Float32:
        """A query that no picture answers better than this one."""
        if form != "local":
            return np.asarray(self._as(form, slice(position, position + 1))[0])
        locals_ = self.gallery.gather(self.gallery.rows[position : position + 1]).decoded()
        return np.asarray(locals_[0], np.float32)

    def _as(self, form: Form, positions: slice) -> Float32:
        read = np.asarray(self.pooled[positions], np.float32)
        return unit(read) if form == "pooled" else np.ascontiguousarray(read[:, : self.gallery.card.dim])


def _read(gallery: Gallery) -> Iterator[tuple[int, NDArray[np.float16], NDArray[Any]]]:
    """Position of the first, global and local vectors, in gallery order."""
    for start in range(0, len(gallery), _BATCH):
        rows, places = distinct(gallery.rows[start : start + _BATCH], gallery.row_count)
        blocks = list(pieces_of(gallery, rows, _BATCH))
        wholes = np.concatenate([block.global_vectors for block in blocks])
        locals_ = np.concatenate([block.decoded() for block in blocks])
        yield (start, wholes, locals_) if places is None else (start, wholes[places], locals_[places])


def form_of(query: CompiledQuery, form: Form) -> Float32:
    """The query in the form that an engine reads. `local` has no weights: only probes that are wanted are left."""
    target = query.target * np.float32(query.target_weight)
    if form == "global":
        return target
    if form == "pooled":
        return unit(np.concatenate([target, query.weights @ query.probes]))
    wanted = query.probes[query.weights > 0]
    return wanted if len(wanted) else query.target[None]


def unit(vectors: Float32) -> Float32:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), np.float32)


@dataclass(frozen=True)
class Engine:
    """`build` makes an index in a folder; `open` opens that in another process, and says how it is asked."""

    name: str
    package: str
    form: Form
    settings: str  # one line for the table
    build: Callable[[Pictures, Form, Path], None]
    open: Callable[[Path], Find]


def _faiss(kind: str) -> Callable[[Pictures, Form, Path], None]:
    def build(pictures: Pictures, form: Form, folder: Path) -> None:
        import faiss

        lists = int(4 * len(pictures) ** 0.5)
        few = pictures.some(form, _PER_LIST * lists)
        index: Any = faiss.index_factory(few.shape[1], kind.replace("LISTS", str(lists)), faiss.METRIC_INNER_PRODUCT)
        index.train(few)
        for _, lot in pictures.lots(form):
            index.add(lot)
        faiss.write_index(index, str(folder / "index"))

    return build


def _open_faiss(folder: Path) -> Find:
    import faiss

    index: Any = faiss.read_index(str(folder / "index"))
    inverted, graph = isinstance(index, faiss.IndexIVF), isinstance(index, faiss.IndexHNSW)

    def find(query: Float32, count: int) -> NDArray[np.int64]:
        if inverted:  # a sixteenth of the lists, and so many that they hold the candidates four times over
            index.nprobe = min(index.nlist, max(index.nlist // 16, -(-4 * count * index.nlist // index.ntotal)))
        if graph:
            index.hnsw.efSearch = max(64, count)
        return np.asarray(index.search(query[None], count)[1][0], np.int64)

    return find


def _usearch(pictures: Pictures, form: Form, folder: Path) -> None:
    from usearch.index import Index

    width = pictures.some(form, 1).shape[1]
    index = Index(ndim=width, metric="ip", dtype="i8", connectivity=16, expansion_add=128)
    for start, lot in pictures.lots(form):
        index.add(np.arange(start, start + len(lot)), lot)
    index.save(str(folder / "index"))


def _open_usearch(folder: Path) -> Find:
    from usearch.index import Index

    index = Index.restore(str(folder / "index"))
    assert index is not None

    def find(query: Float32, count: int) -> NDArray[np.int64]:
        index.expansion_search = max(64, count)
        return np.asarray(index.search(query, count).keys, np.int64)

    return find


def _qdrant(pictures: Pictures, form: Form, folder: Path) -> None:
    import qdrant_edge as qd

    width = pictures.some(form, 1).shape[1]
    eighths = qd.ScalarQuantizationConfig(type=qd.ScalarType.Int8, quantile=0.99, always_ram=True)
    hnsw = qd.HnswIndexConfig(m=16, ef_construct=128, full_scan_threshold=1000)
    half = qd.VectorStorageDatatype.Float16
    params = qd.EdgeVectorParams(size=width, distance=qd.Distance.Dot, on_disk=True, datatype=half)
    config = qd.EdgeConfig(vectors={"": params}, hnsw_config=hnsw, quantization_config=eighths)
    shard = qd.EdgeShard.create(str(folder), config)
    for start, lot in pictures.lots(form):
        points = [qd.Point(start + place, vector.tolist(), {}) for place, vector in enumerate(lot)]
        shard.update(qd.UpdateOperation.upsert_points(points))
    while shard.optimize():
        pass
    shard.close()


def _open_qdrant(folder: Path) -> Find:
    import qdrant_edge as qd

    shard = qd.EdgeShard.load(str(folder))
    quantised = qd.QuantizationSearchParams(rescore=False)  # that is our part

    def find(query: Float32, count: int) -> NDArray[np.int64]:
        params = qd.SearchParams(hnsw_ef=max(64, count), quantization=quantised)
        asked = qd.QueryRequest(limit=count, query=qd.Query.Nearest(query.tolist()), params=params)
        return np.array([point.id for point in shard.query(asked)], np.int64)

    return find


def _lance(pictures: Pictures, form: Form, folder: Path) -> None:
    import lance
    import pyarrow as pa

    vector = pa.list_(pa.field("item", pa.float16()), pictures.gallery.card.dim)
    schema = pa.schema([("position", pa.int64()), ("vectors", pa.list_(vector))])

    def batches() -> Iterator[pa.RecordBatch]:
        for start, lot in pictures.lots(form):
            rows, count, _ = lot.shape
            flat = pa.FixedSizeListArray.from_arrays(pa.array(lot.reshape(-1).astype(np.float16)), type=vector)
            ends = pa.array(np.arange(rows + 1, dtype=np.int32) * count)
            column = pa.ListArray.from_arrays(ends, flat, type=pa.list_(vector))
            yield pa.record_batch([pa.array(np.arange(start, start + rows)), column], schema=schema)

    data = lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), str(folder / "data"))
    data.create_index("vectors", "IVF_PQ", metric="cosine", num_sub_vectors=pictures.gallery.card.dim // 8)


def _open_lance(folder: Path) -> Find:
    os.environ.setdefault("LANCE_LOG", "error")
    import lance

    data = lance.dataset(str(folder / "data"))
    columns = ["position", "_distance"]

    def find(query: Float32, count: int) -> NDArray[np.int64]:
        nearest = {"column": "vectors", "q": query.astype(np.float16), "k": count, "metric": "cosine"}
        return np.asarray(data.to_table(columns=columns, nearest=nearest)["position"].to_numpy(), np.int64)

    return find


ENGINES = (
    Engine("faiss-flat", "faiss-cpu", "global", "Flat", _faiss("Flat"), _open_faiss),
    Engine(
        "faiss-ivf-sq8", "faiss-cpu", "global", "4 sqrt(N) lists, a 16th probed", _faiss("IVFLISTS,SQ8"), _open_faiss
    ),
    Engine("faiss-hnsw", "faiss-cpu", "global", "HNSW32, efSearch N", _faiss("HNSW32,Flat"), _open_faiss),
    Engine("usearch-i8", "usearch", "pooled", "int8, 16 links, expansion N", _usearch, _open_usearch),
    Engine("qdrant-edge-int8", "qdrant-edge-py", "pooled", "int8, m 16, ef N, not rescored", _qdrant, _open_qdrant),
    Engine("lance-multivector", "pylance", "local", "IVF_PQ of d / 8 bytes, late interaction", _lance, _open_lance),
)
