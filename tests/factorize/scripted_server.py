"""An OpenAI-compatible server on loopback that behaves as badly as it is told."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Request = dict[str, Any]  # the JSON body


@dataclass(frozen=True)
class Step:
    """One HTTP answer."""

    body: Any = None  # JSON, or text sent as it is
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    trickle: bool = False  # one byte every 50 ms, for as long as the client listens
    flood: bool = False  # the body again and again, for as long as the client listens
    drop: bool = False  # close the connection in the middle of the answer


Script = Callable[[Request], Step]


def says(text: str | None, *, finish: str = "stop", **message: Any) -> Step:
    """A chat completion with this content; more fields of the message (reasoning, ...) by name."""
    choice = {"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return Step(
        {"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], "usage": usage}
    )


def fails(status: int, message: str = "no", headers: Mapping[str, str] | None = None, code: str | None = None) -> Step:
    return Step({"error": {"message": message, "type": "scripted", "code": code}}, status, headers or {})


class ScriptedServer:
    """Plays its steps in order, the last one for ever; or asks a function. Keeps what it was sent."""

    def __init__(self, *steps: Step, script: Script | None = None) -> None:
        self.requests: list[Request] = []
        self.keys: list[str] = []  # the Authorization headers
        self._steps = steps
        self._script = script
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._http = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _next(self, request: Request) -> Step:
        with self._lock:
            self.requests.append(request)
            if self._script is not None:
                return self._script(request)
            return self._steps[min(len(self.requests), len(self._steps)) - 1]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.keys.append(self.headers.get("Authorization", ""))
                step = server._next(request)
                data = (step.body if isinstance(step.body, str) else json.dumps(step.body)).encode()
                self.send_response(step.status)
                self.send_header("Content-Type", "application/json")
                more = 1 << 40 if step.flood else 1000 if step.trickle or step.drop else 0
                self.send_header("Content-Length", str(len(data) + more))
                for name, value in step.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(data)
                    while step.flood and not server._closing.is_set():
                        self.wfile.write(data)
                    while step.trickle and not server._closing.is_set():
                        self.wfile.write(b" ")
                        time.sleep(0.05)
                except OSError:
                    self.close_connection = True  # the client has gone: that is what some tests are about
                if step.drop:
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True  # a keep-alive connection must not hold the test up
    request_queue_size = 128

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients that hang up are part of the play
