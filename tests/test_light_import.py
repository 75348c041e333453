import subprocess
import sys


def test_importing_tapr_loads_nothing_heavy() -> None:
    heavy = ["torch", "open_clip", "fastapi", "ray", "httpx", "onnxruntime", "tokenizers", "matplotlib"]
    code = f"import sys, tapr, tapr.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_search_loads_neither_what_writes_nor_other_factorizers() -> None:
    unused = ["tapr.index.build", "tapr.index.apply_writes", "tapr.index.repair", "tapr.factorize.chat", "asyncio"]
    code = (
        "import sys, tapr.cli.search; from tapr.factorize.registry import FACTORIZERS; FACTORIZERS['grounded'];"
        f" print([name for name in {unused!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
