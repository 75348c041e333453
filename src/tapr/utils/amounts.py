"""Amounts as people write them: 1 picture, 2,000 pictures, 23.8 MB."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str | None = None) -> str:
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def file_size(size: int) -> str:
    """Say a size in the megabytes of --max-upload, 2**20 bytes each; one that would round to nothing in bytes."""
    return counted(size, "byte") if size < 2**20 else f"{size / 2**20:.1f}".removesuffix(".0") + " MB"
