"""The compiled matching kernel. Where it cannot be built the installation goes on without it, and NumPy is used."""

import sys

from setuptools import Extension, setup

NATIVE = "src/tapr/match/native"
SOURCES = ("module", "pack", "portable", "avx2", "avx512", "avx512vnni", "amx")
HEADERS = ("job.h", "engine.inc", "widen512.inc", "codes512.inc")
FLAGS = [
    "-std=c++17",
    "-O3",
    "-ffp-contract=fast",  # fused multiply-add wherever the instruction set has it: gcc's default, not clang's
    "-Wno-maybe-uninitialized",  # gcc's own intrinsics
    "-Wno-unknown-warning-option",  # clang does not know the one above
]

setup(
    ext_modules=[
        Extension(
            "tapr.match._kernel",
            sources=[f"{NATIVE}/{name}.cpp" for name in SOURCES],
            depends=[f"{NATIVE}/{name}" for name in HEADERS],
            extra_compile_args=[] if sys.platform == "win32" else FLAGS,
            extra_link_args=[] if sys.platform == "win32" else ["-pthread"],
            optional=True,
        )
    ]
)
