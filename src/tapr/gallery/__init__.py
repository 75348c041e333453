"""The evidence bank: pictures as vectors on disk."""

from tapr.gallery.gallery import Gallery

__all__ = ["Gallery"]
