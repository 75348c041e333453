"""Import onnxruntime silently: its releases report their use to their makers unless that is switched off.

It looks at the variable when it is imported, and keeps a name for the machine in the cache folder otherwise. Whoever
wants the events can set ORT_DISABLE_TELEMETRY=0.
"""

from __future__ import annotations

import os

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnxruntime

__all__ = ["onnxruntime"]
