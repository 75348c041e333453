"""Engines that find candidates, each with the settings that its makers advise, on 1,024 numbers per picture."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Search = Callable[[NDArray[np.float32], int], NDArray[np.int64]]  # (2 d,), count -> rows
_BATCH = 4096
_TRAINED_ON = 20_000


@dataclass(frozen=True)
class EngineRow:
    """One engine: `build` makes an index in a folder and returns its search."""

    name: str
    packages: tuple[str, ...]
    licence: str
    build: Callable[[NDArray[Any], Path], Search]

    def trial(self, vectors: NDArray[Any], asked: NDArray[np.float32], exact: NDArray[np.int64], work: Path) -> str:
        folder = work / f"engine-{self.name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        before, start = _own_memory(), time.perf_counter()
        search = self.build(vectors, folder)
        built, memory = time.perf_counter() - start, _own_memory() - before
        times, recalls = list[float](), {100: list[float](), 1000: list[float]()}
        for query, best in zip(asked, exact, strict=True):
            for count, recall in recalls.items():
                start = time.perf_counter()
                found = search(query, count)
                times.append(time.perf_counter() - start)
                recall.append(len(np.intersect1d(found, best)) / len(best))
        disk = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / len(vectors)
        recalled = " | ".join(f"{np.mean(recall):.1%}" for recall in recalls.values())
        shutil.rmtree(folder, ignore_errors=True)
        version = distribution(self.packages[0]).version
        return (
            f"| {self.name} {version} | {self.licence} | {_installed(self.packages):.0f} MB "
            f"| {built:.0f} s | {memory / 1e6:.0f} MB | {disk:,.0f} | {1e3 * np.median(times):.1f} | {recalled} |"
        )


def _batches(vectors: NDArray[Any]) -> Iterator[tuple[int, NDArray[np.float32]]]:
    for start in range(0, len(vectors), _BATCH):
        yield start, np.ascontiguousarray(vectors[start : start + _BATCH], np.float32)


def _faiss(kind: str) -> Callable[[NDArray[Any], Path], Search]:
    def build(vectors: NDArray[Any], folder: Path) -> Search:
        import faiss

        lists = int(4 * len(vectors) ** 0.5)
        spec = kind.replace("LISTS", str(lists))
        index: Any = faiss.index_factory(vectors.shape[1], spec, faiss.METRIC_INNER_PRODUCT)
        step = max(1, len(vectors) // (_TRAINED_ON if lists * 39 < _TRAINED_ON else 40 * lists))
        index.train(np.ascontiguousarray(vectors[::step], np.float32))
        for _, lot in _batches(vectors):
            index.add(lot)
        if "IVF" in spec:
            index.nprobe = lists // 8
        faiss.write_index(index, str(folder / "index"))

        def search(query: NDArray[np.float32], count: int) -> NDArray[np.int64]:
            if "HNSW" in spec:
                index.hnsw.efSearch = max(64, count)
            return np.asarray(index.search(query[None], count)[1][0], np.int64)

        return search

    return build


def _usearch(vectors: NDArray[Any], folder: Path) -> Search:
    from usearch.index import Index

    index = Index(ndim=vectors.shape[1], metric="ip", dtype="i8", connectivity=16, expansion_add=128)
    for start, lot in _batches(vectors):
        index.add(np.arange(start, start + len(lot)), lot / np.linalg.norm(lot, axis=1, keepdims=True))
    index.save(str(folder / "index"))

    def search(query: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        index.expansion_search = max(64, count)
        return np.asarray(index.search(query / np.linalg.norm(query), count).keys, np.int64)

    return search


def _lance(vectors: NDArray[Any], folder: Path) -> Search:
    import lance
    import pyarrow as pa

    def batches() -> Iterator[pa.RecordBatch]:
        for start, lot in _batches(vectors):
            column = pa.FixedSizeListArray.from_arrays(pa.array(lot.reshape(-1)), vectors.shape[1])
            yield pa.record_batch([pa.array(np.arange(start, start + len(lot))), column], names=["row", "vector"])

    schema = pa.schema([("row", pa.int64()), ("vector", pa.list_(pa.float32(), vectors.shape[1]))])
    data = lance.write_dataset(pa.RecordBatchReader.from_batches(schema, batches()), str(folder / "data"))
    lists = int(len(vectors) ** 0.5)
    data.create_index("vector", "IVF_PQ", metric="dot", num_partitions=lists, num_sub_vectors=128)

    def search(query: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        nearest = {"column": "vector", "q": query, "k": count, "nprobes": max(1, lists // 16), "metric": "dot"}
        return np.asarray(data.to_table(columns=["row"], nearest=nearest)["row"].to_numpy(), np.int64)

    return search


def _qdrant(vectors: NDArray[Any], folder: Path) -> Search:
    import qdrant_edge as qd

    eighths = qd.ScalarQuantizationConfig(type=qd.ScalarType.Int8, quantile=0.99, always_ram=True)
    hnsw = qd.HnswIndexConfig(m=16, ef_construct=128, full_scan_threshold=1000)
    params = qd.EdgeVectorParams(size=vectors.shape[1], distance=qd.Distance.Dot, on_disk=True)
    shard = qd.EdgeShard.create(
        str(folder), qd.EdgeConfig(vectors={"": params}, hnsw_config=hnsw, quantization_config=eighths)
    )
    for start, lot in _batches(vectors):
        points = [qd.Point(start + place, vector.tolist(), {}) for place, vector in enumerate(lot)]
        shard.update(qd.UpdateOperation.upsert_points(points))
    shard.optimize()

    def search(query: NDArray[np.float32], count: int) -> NDArray[np.int64]:
        nearest = qd.Query.Nearest(query.tolist())
        asked = qd.QueryRequest(limit=count, query=nearest, params=qd.SearchParams(hnsw_ef=max(64, count)))
        return np.array([point.id for point in shard.query(asked)], np.int64)

    return search


def _own_memory() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("this system does not say how much memory a process uses")


def _installed(packages: tuple[str, ...]) -> float:
    """MB of the files of these packages."""
    sizes = [
        Path(str(file.locate())).stat().st_size
        for package in packages
        for file in distribution(package).files or ()
        if Path(str(file.locate())).is_file()
    ]
    return sum(sizes) / 1e6


ENGINES = (
    EngineRow("faiss-flat-sq8", ("faiss-cpu",), "MIT", _faiss("SQ8")),
    EngineRow("faiss-ivf-sq8", ("faiss-cpu",), "MIT", _faiss("IVFLISTS,SQ8")),
    EngineRow("faiss-hnsw-sq8", ("faiss-cpu",), "MIT", _faiss("HNSW16,SQ8")),
    EngineRow("usearch-i8", ("usearch", "numkong"), "Apache-2.0", _usearch),
    EngineRow("lance-ivf-pq", ("pylance", "pyarrow"), "Apache-2.0", _lance),
    EngineRow("qdrant-edge-int8", ("qdrant-edge-py",), "Apache-2.0", _qdrant),
)
