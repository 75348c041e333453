"""Opens the desktop's file manager."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path


def show_in_folder(path: str) -> bool:
    """Open the file manager at the file's folder and select the file if possible. False if there is no desktop."""
    command = _command(path)
    if command is None:
        return False
    try:
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except OSError:
        return False
    return True


def _command(path: str) -> list[str] | str | None:
    if sys.platform == "win32":
        # explorer parses its command line itself; file names cannot contain quotes on Windows
        return f'explorer /select,"{path}"'
    if sys.platform == "darwin":
        return ["open", "-R", path]
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return None
    if shutil.which("dbus-send"):
        return [
            "dbus-send", "--session", "--type=method_call", "--dest=org.freedesktop.FileManager1",
            "/org/freedesktop/FileManager1", "org.freedesktop.FileManager1.ShowItems",
            f"array:string:{Path(path).as_uri()}", "string:",
        ]  # fmt: skip
    return ["xdg-open", os.path.dirname(path)] if shutil.which("xdg-open") else None
