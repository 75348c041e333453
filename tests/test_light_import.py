import subprocess
import sys


def test_importing_tapr_loads_nothing_heavy() -> None:
    heavy = ["torch", "open_clip", "fastapi", "ray", "openai", "onnxruntime", "tokenizers", "matplotlib"]
    code = f"import sys, tapr, tapr.cli.main; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
