"""TAPR and the systems it is compared with, each a short file over the same cached features."""

from tapr.methods.base import Method, QueryLike
from tapr.methods.features import Features
from tapr.methods.records import RecordSet
from tapr.methods.registry import BASELINES, METHODS, make_method

__all__ = ["BASELINES", "METHODS", "Features", "Method", "QueryLike", "RecordSet", "make_method"]
