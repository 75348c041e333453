"""Those who write during benchmarks/soak.py, through two servers that share one gallery.

They put and delete pictures, cut uploads off, send broken pictures and damage stored files. Each writer owns its ids,
so that it knows what must be there: everything that was acknowledged, and nothing else.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import random
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from tapr.gallery import Gallery

PNG = {"Content-Type": "image/png"}
PAUSE = 0.6  # seconds between two writes of one writer: every snapshot is to be seen by the checker


class Writer:
    def __init__(self, name: str, server: Any, bank: Path, pool: list[bytes], shared: Any, seed: int) -> None:
        self._name, self._server, self._bank, self._pool, self._shared = name, server, bank, pool, shared
        self._dice = random.Random(seed)
        self._connection = server.connection()
        self._made = 0
        self.there: dict[str, bytes] = {}  # id -> the bytes that were acknowledged
        self.unknown: set[str] = set()  # ids of writes whose answer never came
        self.done: Counter[str] = Counter()

    def work(self) -> None:
        while time.monotonic() < self._shared.until:
            draw = self._dice.random()
            try:
                if draw < 0.5 or len(self.there) < 3:
                    self._put()
                elif draw < 0.62:
                    self._metadata()
                elif draw < 0.77:
                    self._delete()
                elif draw < 0.86:
                    self._cut_off()
                elif draw < 0.94:
                    self._broken()
                else:
                    self._damage()
            except (OSError, http.client.HTTPException) as error:
                self._shared.fault(f"{self._name}: the connection broke: {error!r}")
                self._connection = self._server.connection()
            time.sleep(self._dice.uniform(0.5, 1.5) * PAUSE)

    def _picture(self) -> bytes:
        """Bytes after its end tell it from all others."""
        data = self._dice.choice(self._pool) + self._dice.randbytes(8)
        self._shared.versions[hashlib.sha256(data).hexdigest()] = data
        return data

    def _ask(self, kind: str, method: str, id_: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        begin = time.perf_counter()
        self._connection.request(method, f"/api/images/{quote(id_, safe='')}", body, headers)
        reply = self._connection.getresponse()
        content = reply.read()
        with self._shared.lock:
            self._shared.counts[kind, reply.status] += 1
            self._shared.times.setdefault(kind, []).append(time.perf_counter() - begin)
        if reply.status in (429, 503):
            time.sleep(float(reply.headers["Retry-After"]))
        elif reply.status >= 500:
            self._shared.fault(f"{self._name}: {kind} {id_} was answered {reply.status}: {content[:300]!r}")
        return reply.status, content

    def _put(self, id_: str | None = None) -> None:
        if id_ is None:
            self._made += 1
            known = sorted(self.there)
            id_ = self._dice.choice(known) if known and self._dice.random() < 0.3 else f"{self._name}-{self._made}"
        data = self._picture()
        status, content = self._ask("put", "PUT", id_, data, PNG)
        if status in (200, 201):
            self.there[id_] = data
            self.done["put"] += 1
            self._see(id_)
        elif status == 503 and b"no answer within" in content:
            self.unknown.add(id_)
        elif status not in (429, 503):
            self._shared.fault(f"{self._name}: put {id_} was answered {status}: {content[:300]!r}")

    def _see(self, id_: str) -> None:
        status, content = self._ask("get what was put", "GET", id_, None, {})
        if (status, content) != (200, self.there[id_]) and status != 429:
            self._shared.fault(f"{self._name}: {id_} was put, and the next GET was {status}, {len(content)} bytes")

    def _metadata(self) -> None:
        id_ = self._dice.choice(sorted(self.there))
        wrong = self._dice.random() < 0.3
        body = json.dumps({"metadata": {"price": "cheap" if wrong else self._dice.randrange(100)}}).encode()
        status, content = self._ask("put metadata", "PUT", id_, body, {"Content-Type": "application/json"})
        right = (200, 400, 429, 503) if wrong else (200, 429, 503)  # the first ever may be a text
        if status not in right:
            self._shared.fault(f"{self._name}: metadata of {id_} was answered {status}: {content[:300]!r}")
        self.done["metadata refused" if status == 400 else "metadata"] += 1

    def _delete(self) -> None:
        id_ = self._dice.choice(sorted(self.there))
        status, content = self._ask("delete", "DELETE", id_, None, {})
        if status == 200:
            del self.there[id_]
            self.done["deleted"] += 1
        elif status == 503 and b"no answer within" in content:
            self.unknown.add(id_)
        elif status not in (429, 503):
            self._shared.fault(f"{self._name}: delete {id_} was answered {status}: {content[:300]!r}")

    def _cut_off(self) -> None:
        """A client that goes away in the middle of an upload; nothing may come of it."""
        parts = urlsplit(self._server.url)
        data = self._picture()
        with socket.create_connection((parts.hostname or "", parts.port or 80), timeout=60) as connection:
            head = f"PUT /api/images/{self._name}-cut HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: image/png\r\n"
            connection.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data[: len(data) // 2])
        self.done["cut off"] += 1

    def _broken(self) -> None:
        data = self._picture()[:200]
        status, content = self._ask("put a broken picture", "PUT", f"{self._name}-broken", data, PNG)
        if status not in (415, 429):
            self._shared.fault(f"{self._name}: a broken picture was answered {status}: {content[:300]!r}")
        self.done["broken"] += 1

    def _damage(self) -> None:
        """A stored file is overwritten: it is not served, and putting it again heals it."""
        id_ = self._dice.choice(sorted(self.there))
        sha256 = hashlib.sha256(self.there[id_]).hexdigest()
        for path in (self._bank / "uploads" / sha256[:2]).glob(f"{sha256}-*"):
            path.write_bytes(self._dice.randbytes(100))
        status, content = self._ask("get what is damaged", "GET", id_, None, {})
        if status not in (404, 429):
            self._shared.fault(f"{self._name}: the damaged {id_} was answered {status}, {len(content)} bytes")
        for _ in range(20):
            if self._ask("put", "PUT", id_, self.there[id_], PNG)[0] == 200:
                break
        self._see(id_)
        self.done["damaged and healed"] += 1

    def faults_at_the_end(self, gallery: Gallery) -> list[str]:
        """What was acknowledged and is not so."""
        found = {id_ for id_ in gallery.ids() if id_.startswith(f"{self._name}-")}
        wanted = set(self.there)
        out = [f"{id_} was acknowledged and is gone" for id_ in wanted - found - self.unknown]
        out += [f"{id_} is there and should not be" for id_ in found - wanted - self.unknown]
        for id_ in sorted(wanted & found - self.unknown):
            entry = gallery.find(id_)
            if entry is None or Path(entry.path).read_bytes() != self.there[id_]:
                out.append(f"{id_} does not hold what was put")
        return out
