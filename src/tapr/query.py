"""The names under which compiling a query is public; score/compile.py is what they name."""

from tapr.score.compile import TAU, CompiledQuery, Continuity, Term, compile_query

__all__ = ["TAU", "CompiledQuery", "Continuity", "Term", "compile_query"]
