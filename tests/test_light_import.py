import subprocess
import sys
from pathlib import Path

from tapr import Gallery
from tapr.encoders.fake import FakeEncoder
from tests.pictures import SOME_FLAGS, write_flags


def test_importing_tapr_loads_nothing_heavy() -> None:
    heavy = ["torch", "open_clip", "fastapi", "ray", "httpx", "onnxruntime", "tokenizers", "matplotlib"]
    code = f"import sys, tapr, tapr.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_search_loads_neither_what_writes_nor_other_factorizers() -> None:
    unused = ["tapr.index", "tapr.factorize.chat", "asyncio"]
    code = (
        "import sys, tapr.cli.search; from tapr.factorize.registry import FACTORIZERS; FACTORIZERS['grounded'];"
        f" print([name for name in {unused!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_opening_and_searching_a_gallery_loads_nothing_that_writes(tmp_path: Path) -> None:
    write_flags(tmp_path / "p", SOME_FLAGS)
    gallery = Gallery.build(tmp_path / "g", tmp_path / "p", FakeEncoder())
    code = (
        "import sys, tapr\n"
        f"gallery = tapr.Gallery.open({str(gallery.path)!r})\n"
        "assert tapr.search(gallery, spec={'target': 'red'}, k=3).hits\n"
        "print([name for name in sys.modules if name.startswith('tapr.index')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
