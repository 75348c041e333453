"""The compiled matching kernel. Where it cannot be built the installation goes on without it, and NumPy is used."""

import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

NATIVE = Path("src/tapr/search/kernels/native")
# No flag here may name a processor (-march, -mavx2, ...): the wheel runs on every one, each source file says for itself
# which instruction sets its functions use, and processor.cpp asks for them.
FLAGS = [
    "-std=c++17",
    "-O3",
    "-g0",  # Python's own flags may ask for debugging notes, which hold the folder's name: no two builds would be equal
    "-ffp-contract=fast",  # fused multiply-add wherever the instruction set has it: gcc's default, not clang's
    "-Wno-maybe-uninitialized",  # gcc's own intrinsics
    "-Wno-unknown-warning-option",  # clang does not know the one above
]


def files(*endings: str) -> list[str]:
    return sorted(path.as_posix() for ending in endings for path in NATIVE.glob(f"*{ending}"))


KERNEL = Extension(
    "tapr.search.kernels._kernel",
    sources=files(".cpp"),
    depends=files(".h", ".inc"),
    extra_compile_args=FLAGS,
    extra_link_args=["-pthread"],
    optional=True,
)

if sys.platform == "win32":
    # The sources use the vector types of gcc and clang, which Microsoft's compiler does not have. The wheel is pure Python,
    # and is marked for Windows so that no other system takes it for its own.
    setup(options={"bdist_wheel": {"plat_name": sysconfig.get_platform().replace("-", "_")}})
else:
    setup(ext_modules=[KERNEL])
