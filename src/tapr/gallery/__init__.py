"""The evidence bank: pictures as vectors on disk."""

from tapr.gallery.bank import Gallery

__all__ = ["Gallery"]
