"""Search a running tapr server from Python, with nothing but the standard library.

python examples/client.py http://127.0.0.1:8765 REFERENCE "EDIT" [TOKEN]
"""

import json
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


def search(server: str, reference: Path, edit: str, token: str = "", k: int = 5) -> dict[str, Any]:
    part = '--part\r\nContent-Disposition: form-data; name="{}"\r\n\r\n{}\r\n'
    body = (part.format("edit", edit) + part.format("k", k)).encode()
    body += b'--part\r\nContent-Disposition: form-data; name="reference"; filename="reference"\r\n\r\n'
    body += reference.read_bytes() + b"\r\n--part--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=part", "Authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(f"{server}/api/search", body, headers)) as reply:
        found: dict[str, Any] = json.load(reply)
    return found


if __name__ == "__main__":
    try:
        found = search(sys.argv[1], Path(sys.argv[2]), sys.argv[3], sys.argv[4] if len(sys.argv) > 4 else "")
    except urllib.error.HTTPError as error:
        sys.exit(json.load(error)["detail"])
    for hit in found["hits"]:
        best = max(hit["contributions"], key=lambda part: part["value"])
        print(f"{hit['rank']:2} {hit['score']:.3f} {hit['id']}  (most by {best['factor']}: {best['text']})")
