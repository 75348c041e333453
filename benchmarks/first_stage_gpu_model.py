"""Modelled pictures for first_stage_gpu.py: records made on the device, vectors again from a picture's number.

A base picture's local vectors share a centre and a few directions. A picture is a mixture of two base pictures: every
vector is unit((1 - x) a + x b), x from 0 to 0.35. Its records are those of store/summary.py but for the choice of the
directions, which is coarser, and for the lengths of rests, which are a little longer: the bound holds for any.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tapr.encoders.base import EncoderCard, unit
from tapr.search.kernels.base import Rows
from tapr.search.prefilter.gpu_records import BankRecords, DeviceRecords, Outlined, Summarised
from tapr.store.block import Block, Precision
from tapr.store.codec import rotation
from tapr.store.summary import HELD, SPREAD, Subspaces, directions_of, outline_type, pooled_step, summary_type
from tapr.types import Float32

CHUNK = 4096  # pictures made at a time
_SPARE = 2e-4  # added to lengths of rests: more than float32 here, and fp16 rounded in another way there, can change


class RecipeBank:
    """Pictures of which only records are kept. `gather` makes their vectors again."""

    precision: Precision = "fp16"

    def __init__(self, bases: int, count: int, dim: int, pictures: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.card = EncoderCard("modelled", "", dim, (1, count), "tokens", 0, "crop")
        self.row_count = pictures
        self.global_bases = np.empty((bases, dim), np.float32)
        self.local_bases = np.empty((bases, count, dim), np.float16)
        common, topics = unit(rng.standard_normal((1, dim))), unit(rng.standard_normal((60, dim)))
        for start in range(0, bases, 500):
            own = slice(start, min(bases, start + 500))
            centre = unit(rng.standard_normal((own.stop - start, dim)))
            which = rng.integers(0, len(topics), (own.stop - start, 1, 6))
            shares = rng.dirichlet(np.full(6, 0.3), (own.stop - start, count)).astype(np.float32)
            seen = np.einsum("bmt,btd->bmd", shares, topics[which[:, 0]])
            noise = rng.standard_normal(seen.shape, np.float32) / dim**0.5
            self.local_bases[own] = unit(0.8 * common + 0.3 * centre[:, None] + 0.6 * seen + 0.12 * noise)
            self.global_bases[own] = unit(common + 0.7 * centre + 0.5 * unit(rng.standard_normal(centre.shape)))
        self.subspaces = Subspaces.fitted(self.local_bases[: min(bases, 256)])

    @property
    def rows(self) -> Rows:
        return np.arange(self.row_count)

    @property
    def stored(self) -> object:
        return self

    def __len__(self) -> int:
        return self.row_count

    def blocks(self) -> Iterator[Block]:
        return iter(())  # vectors are kept nowhere: none can be read ahead

    def recipe(self, rows: Rows) -> tuple[Rows, Rows, Float32]:
        """Which two base pictures, and how much of the second."""
        mixed = (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed ^= mixed >> np.uint64(29)
        mixed *= np.uint64(0xBF58476D1CE4E5B9)
        mixed ^= mixed >> np.uint64(32)
        bases = np.uint64(len(self.global_bases))
        first, second = mixed % bases, (mixed >> np.uint64(20)) % bases
        x = (mixed >> np.uint64(44)).astype(np.float32) * np.float32(0.35 / 2**20)
        return first.astype(np.int64), second.astype(np.int64), x

    def gather(self, rows: Rows) -> Block:
        first, second, x = self.recipe(rows)
        local_bases = self.local_bases
        globals_ = _mixed(self.global_bases[first], self.global_bases[second], x[:, None])
        locals_ = _mixed(
            local_bases[first].astype(np.float32), local_bases[second].astype(np.float32), x[:, None, None]
        )
        return Block(0, globals_.astype(np.float16), locals_.astype(np.float16))


def _mixed(first: Float32, second: Float32, x: Float32) -> Float32:
    both = first + x * (second - first)
    return np.asarray(both / np.sqrt(np.einsum("...d,...d->...", both, both))[..., None], np.float32)


class Maker:
    """Makes records and vectors on the device."""

    def __init__(self, bank: RecipeBank, device: Any) -> None:
        self._bank, self._device = bank, device
        self._globals = torch.from_numpy(bank.global_bases).to(device)
        self._locals = torch.from_numpy(bank.local_bases).to(device)
        dim = bank.card.dim
        self._rotation = torch.from_numpy(rotation(dim).T.astype(np.float32)).to(device)
        self._basis = torch.from_numpy(bank.subspaces.basis).to(device)
        self._kinds = outline_type(bank.card.locals_count, dim), summary_type(bank.card.locals_count, dim)

    def room(self, count: int) -> BankRecords:
        dim = self._bank.card.dim
        outlines, summaries = (DeviceRecords.room(kind, count, self._device) for kind in self._kinds)
        pooled = torch.empty((count, 2 * dim), dtype=torch.int8, device=self._device)
        global_vectors = torch.empty((count, dim), dtype=torch.float16, device=self._device)
        return BankRecords(Outlined(pooled, outlines), Summarised(global_vectors, summaries))

    def vectors(self, rows: Rows) -> tuple[Any, Any]:
        """(B, d), (B, M, d) fp16"""
        first, second, x = (torch.from_numpy(array).to(self._device) for array in self._bank.recipe(rows))

        def mixed(bases: Any, share: Any) -> Any:
            one = bases[first].float()
            one += share * (bases[second].float() - one)
            return (one / one.norm(dim=-1, keepdim=True)).half()

        return mixed(self._globals, x[:, None]), mixed(self._locals, x[:, None, None])

    def fill(self, records: BankRecords, start: int, stop: int) -> None:
        whole, places = self.vectors(np.arange(start, stop))
        own, dim = slice(start, stop), self._bank.card.dim
        turned, rotated, unit_ = places.float() @ self._rotation, whole.float() @ self._rotation, pooled_step(dim)
        wholes, means = ((part / unit_).round().clamp(-127, 127) for part in (rotated, turned.mean(dim=1)))
        records.outlined.pooled[own] = torch.cat([wholes, means], dim=1).char()
        lost = (rotated - wholes * unit_).norm(dim=-1) + _SPARE
        records.outlined.outlines.fields["lost"][own] = lost
        along = (turned @ means[..., None]) / means.square().sum(dim=-1).clamp(min=1)[:, None, None]
        first, second = directions_of(*turned.shape[1:])
        scales, codes = _codes(_directions(turned - along * means[:, None], first + second))
        with_mean = torch.cat([means[:, None], codes[:, :first]], dim=1)
        its_scales = torch.cat([torch.full_like(scales[:, :1], unit_), scales[:, :first]], dim=1)
        left = self._record(turned, turned, its_scales, with_mean, records.outlined.outlines, own)
        records.outlined.outlines.fields["codes"][own] = _packed(codes[:, :first])
        assert records.summarised is not None
        summaries = records.summarised.summaries
        self._record(turned, left, scales[:, first:], codes[:, first:], summaries, own)
        summaries.fields["codes"][own] = _packed(codes[:, first:])
        records.summarised.global_vectors[own] = whole

    def _record(self, vectors: Any, left: Any, scales: Any, codes: Any, records: DeviceRecords, own: slice) -> Any:
        """As summary.Summariser fills it."""
        stored = codes * scales[..., None]
        products = stored @ stored.mT
        products += 1e-5 * torch.eye(products.shape[-1], device=self._device)
        wanted = torch.cholesky_solve(stored @ left.mT, torch.linalg.cholesky_ex(products)[0]).mT  # (B, M, R)
        scale = wanted.abs().amax(dim=1, keepdim=True).clamp(min=1e-9) / 127
        shares, scales = (wanted / scale).round().clamp(-127, 127), scales[:, None] * scale  # (B, 1, R)
        stored = codes * scales.mT
        rests = left - shares @ stored
        worse = rests.norm(dim=-1) > left.norm(dim=-1)
        worse |= (vectors - rests).norm(dim=-1) > HELD - _SPARE
        worse |= (shares.abs() @ stored.norm(dim=-1, keepdim=True))[..., 0] > SPREAD - _SPARE
        shares[worse], rests[worse] = 0, left[worse]
        mean_shares = shares.mean(dim=1)
        means = left.mean(dim=1) - (mean_shares[:, None] @ stored)[:, 0]
        lengths = self._lengths(torch.cat([rests, means[:, None]], dim=1))  # (B, M + 1, blocks)
        step = lengths.amax(dim=(1, 2)) * (1 + 1e-6) / 255 + 1e-30
        numbers = (lengths / step[:, None, None]).ceil().clamp(max=255).byte()
        fields = records.fields
        fields["scales"][own], fields["mean_shares"][own], fields["step"][own] = scales[:, 0], mean_shares, step
        fields["shares"][own], fields["rests"][own] = shares.mT.char(), numbers[:, :-1].mT
        fields["mean_rests"][own] = numbers[:, -1]
        return rests

    def _lengths(self, vectors: Any) -> Any:
        turned, starts = vectors @ self._basis, (0, *self._bank.subspaces.ends[:-1])
        parts = [turned[..., a:b].norm(dim=-1) for a, b in zip(starts, self._bank.subspaces.ends, strict=True)]
        return torch.stack(parts, dim=-1) + _SPARE


def _directions(vectors: Any, rank: int) -> Any:
    """(B, M, d) -> (B, R, d): about orthonormal, about those of the longest parts, longest first."""
    count = vectors.shape[1]
    products = vectors @ vectors.mT
    waves = np.cos(np.arange(1, count + 1)[:, None] * np.sqrt(np.arange(2, rank + 2))).astype(np.float32)
    turns = torch.from_numpy(waves).to(vectors.device).expand(len(vectors), -1, -1)
    for _ in range(3):
        turns = _orthonormal((products @ turns).mT).mT
    spanned = _orthonormal(turns.mT @ vectors)
    parts = spanned @ vectors.mT
    _, order = torch.linalg.eigh(parts @ parts.mT)
    return order.flip(-1).mT @ spanned


def _orthonormal(rows: Any) -> Any:
    """Rows (B, R, n), made orthonormal but for rounding; twice, because rows that are alike need it."""
    for _ in range(2):
        rows = rows / rows.norm(dim=-1, keepdim=True).clamp(min=1e-9)
        gram = rows @ rows.mT + 1e-5 * torch.eye(rows.shape[1], device=rows.device)
        rows = torch.linalg.solve_triangular(torch.linalg.cholesky_ex(gram)[0], rows, upper=False)
    return rows


def _codes(directions: Any) -> tuple[Any, Any]:
    scales = directions.abs().amax(dim=-1).clamp(min=1e-6) * 0.75 / 7
    return scales, (directions / scales[..., None]).round().clamp(-7, 7)


def _packed(codes: Any) -> Any:
    numbers, half = codes.char().view(torch.uint8), (codes.shape[-1] + 1) // 2
    high = torch.nn.functional.pad(numbers[..., half:], (0, 2 * half - codes.shape[-1]))
    return (numbers[..., :half] & 15) | (high << 4)


def as_numpy(records: BankRecords, bank: RecipeBank, rows: NDArray[np.int64]) -> Block:
    """These rows, with their records in NumPy's form."""
    chosen = torch.from_numpy(rows).to(records.outlined.pooled.device)
    found = []
    assert records.summarised is not None
    parts = (records.outlined.outlines, records.summarised.summaries)
    for kind, part in zip((outline_type, summary_type), parts, strict=True):
        own = np.zeros(len(rows), kind(bank.card.locals_count, bank.card.dim))
        for name, tensor in part.fields.items():
            array = tensor[chosen].cpu().numpy()
            own[name] = array.transpose(0, 2, 1) if name in ("shares", "rests") else array
        found.append(own)
    block = bank.gather(rows)
    pooled = records.outlined.pooled[chosen].cpu().numpy()
    return Block(0, block.global_vectors, block.local_vectors, outlines=found[0], summaries=found[1], pooled=pooled)
