"""``tracrl data fetch`` from servers that misbehave."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping

from tests.corpus.case import Case

Answer = Callable[[socket.socket, str], None]
WRITES = ("*.part", "*.part.json", "*.incomplete", ".cache*")


def cases() -> Iterator[Case]:
    def ok(more: str = "", body: bytes = b"", length: object = None) -> bytes:
        said = f"Content-Length: {len(body) if length is None else length}\r\n" if length != "" else ""
        return f"HTTP/1.1 200 OK\r\n{said}{more}Connection: close\r\n\r\n".encode() + body

    def answering(content: bytes) -> Answer:
        return lambda connection, request: connection.sendall(content)

    answers: dict[str, Answer] = {
        "hangs up": lambda connection, request: None,
        "says nothing that is HTTP": answering(b"hello\r\n\r\n"),
        "sends zeros": answering(bytes(10_000)),
        "is another web site": answering(ok("Content-Type: text/html\r\n", b"<html>Sign in</html>")),
        "sends nothing": answering(ok()),
        "length negative": answering(ok(length=-5, body=b"x" * 100)),
        "length of text": answering(ok(length="many", body=b"x" * 100)),
        "length of 10^30": answering(ok(length=10**30, body=b"x" * 100)),
        "length too small": answering(ok(length=10, body=b"x" * 100)),
        "no length": answering(ok(length="", body=b"x" * 100)),
        "breaks off": answering(ok(length=10_000, body=b"x" * 100)),
        "breaks off, then another length": _breaking(),
        "letters outside Latin-1": answering(ok("X-Name: 中\r\nETag: é中\r\n", b"x" * 100)),
        "a header without end": answering(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000),
        "a thousand headers": answering(ok("".join(f"X-{i}: y\r\n" for i in range(1000)), b"x")),
        "chunks that are none": answering(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nxx\r\n"),
        "packed, but not": answering(ok("Content-Encoding: gzip\r\n", b"not gzip")),
        **{
            f"status {status}": answering(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())
            for status in (204, 206, 301, 304, 400, 401, 403, 404, 410, 416, 418, 451, 999)
        },
        **{
            f"leads to {place}": answering(f"HTTP/1.1 302 X\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode())
            for place in (
                "/",
                "http://",
                "http://[",
                "file:///etc/passwd",
                "ftp://x/y",
                "http://127.0.0.1:1/",
                "中",
                "",
            )
        },
    }
    for name, answer in answers.items():
        yield _case(f"a server that {name}" if " " in name else name, answer)
    yield _case("a server that waits", lambda connection, request: time.sleep(100), seconds=240)
    yield _case("a server that trickles", _trickling, env={"TRACRL_DATA_PATIENCE": "5"})
    for seconds in ("soon", "-1", "nan"):
        yield _case(f"patience {seconds}", _trickling, env={"TRACRL_DATA_PATIENCE": seconds})
    for address in (
        "nonsense", "http://", "http://[", "http://127.0.0.1:1", "http://127.0.0.1:99999", "http://127.0.0.1:x",
        "file:///etc", "ftp://127.0.0.1/", "http://no such host/", "http://中.invalid/", "http://a..b/", "://",
        "http://user:pass@127.0.0.1:1/", "http://127.0.0.1:1/%zz", "http://127.0.0.1:1/\x1b[2J",
    ):  # fmt: skip
        yield Case(
            "fetch", f"address {address!r}", "data fetch AntCircle --out .", "refused",
            env={"TRACRL_DATA_URL": address}, seconds=100,
        )  # fmt: skip


def _case(name: str, answer: Answer, seconds: float = 100, env: Mapping[str, str] | None = None) -> Case:
    return Case(
        "fetch", name, "data fetch AntCircle --out .", "refused", "", around=lambda folder: _served(answer),
        seconds=seconds, writes=WRITES, env=env or {},
    )  # fmt: skip


@contextlib.contextmanager
def _served(answer: Answer) -> Iterator[Mapping[str, str]]:
    listening = socket.create_server(("127.0.0.1", 0))

    def one(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            answer(connection, connection.recv(65536).decode("latin-1"))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=one, args=[listening.accept()[0]], daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    try:
        yield {"TRACRL_DATA_URL": f"http://127.0.0.1:{listening.getsockname()[1]}"}
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def _breaking() -> Answer:
    asked = []

    def answer(connection: socket.socket, request: str) -> None:
        asked.append(request)
        length = "10000" if len(asked) % 2 else "-7"
        connection.sendall(f"HTTP/1.1 200 OK\r\nETag: x\r\nContent-Length: {length}\r\n\r\n".encode() + b"x" * 100)

    return answer


def _trickling(connection: socket.socket, request: str) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
    while True:
        connection.sendall(b"x")
        time.sleep(1)
