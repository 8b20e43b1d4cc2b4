"""Downloads, against a server on this machine that misbehaves in every way a test asks for."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import io
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import huggingface_hub
import huggingface_hub.file_download
import numpy as np
import pytest
from rich.console import Console

from tests.data.made_up import dsrl_arrays
from tracrl.claims import Claim
from tracrl.data import fetch as module
from tracrl.data.episodes import Episodes
from tracrl.data.fetch import BASE_URL, fetch, verify
from tracrl.data.locate import cache_directory
from tracrl.errors import TracrlError
from tracrl.tasks.table import Task

NAME = "SafetyToy-v0-9-40.hdf5"
CHUNK = 1000
SLEEP = time.sleep


@dataclass
class Behaviour:
    """What the server does; the lists hold one entry a request, and the last entry stays."""

    content: bytes = b""
    etag: str | None = '"one"'
    send: list[int | None] = field(default_factory=lambda: [None])  # bytes to send before hanging up; None: all
    status: list[int] = field(default_factory=lambda: [200])
    ranges: bool = True  # honours Range
    length: bool = True  # says Content-Length
    stall: float = 0.0  # seconds of silence in place of hanging up
    trickle: float = 0.0  # seconds between two bytes
    slow_headers: float = 0.0  # seconds between two bytes of the answer's first line
    odd_length: str | None = None  # said instead of Content-Length in answers to Range
    redirect: str | None = None
    head_status: int = 200
    hang_up: int = 0  # so many first questions are left without an answer
    requests: list[dict[str, str]] = field(default_factory=list)
    sent: int = 0

    def next(self, values: list[Any]) -> Any:
        return values.pop(0) if len(values) > 1 else values[0]


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behaviour: Behaviour

    def log_message(self, *_: Any) -> None:
        pass

    def end_headers(self) -> None:
        # Said, not only done: else the next question may go down a connection that is just being closed.
        self.send_header("Connection", "close")
        super().end_headers()

    def do_HEAD(self) -> None:
        does = self.behaviour
        self.close_connection = True
        if does.hang_up > 0:
            does.hang_up -= 1
            return
        for byte in b"HTTP/1.1 200 OK" if does.slow_headers else b"":
            self.wfile.write(bytes([byte]))
            time.sleep(does.slow_headers)
        if self._redirected():
            return
        self.send_response(does.head_status)
        self._say(len(does.content))
        self.end_headers()

    def _redirected(self) -> bool:
        if self.behaviour.redirect is None or self.path.startswith("/elsewhere"):
            return False
        self.send_response(302)
        self.send_header("Location", self.behaviour.redirect)
        self.send_header("Content-Length", "0")
        self.end_headers()
        return True

    def _say(self, length: int) -> None:
        does = self.behaviour
        if does.etag:
            self.send_header("ETag", does.etag)
        if does.length:
            self.send_header("Content-Length", str(length))

    def do_GET(self) -> None:
        does = self.behaviour
        self.close_connection = True
        if self._redirected():
            return
        does.requests.append({"path": self.path, **self.headers})
        status = does.next(does.status)
        if status != 200:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        start = 0
        wanted = self.headers.get("Range")
        if wanted and does.ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(does.content):
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{len(does.content)}")
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(does.content) - 1}/{len(does.content)}")
        else:
            self.send_response(200)
        if start and does.odd_length is not None:
            self.send_header("Content-Length", does.odd_length)
        else:
            self._say(len(does.content) - start)
        self.end_headers()
        most = does.next(does.send)
        body = does.content[start:] if most is None else does.content[start : start + most]
        if does.trickle:
            with contextlib.suppress(OSError):
                for byte in body:
                    self.wfile.write(bytes([byte]))
                    time.sleep(does.trickle)
            return
        with contextlib.suppress(OSError):  # who asked has gone
            self.wfile.write(body)
        does.sent += len(body)
        if most is not None and does.stall:
            time.sleep(does.stall)


@pytest.fixture(autouse=True)
def _nothing_from_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("TRACRL_DATA_URL", "DSRL_DATASET_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "PAUSE", 0.001)
    monkeypatch.setattr(module, "LEAST", CHUNK)
    # The library's own: small chunks for small files, and no second between two tries.
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", CHUNK)
    monkeypatch.setattr(huggingface_hub.file_download.time, "sleep", lambda seconds: SLEEP(min(seconds, 0.05)))


@pytest.fixture(scope="module")
def episodes() -> Episodes:
    return Episodes.from_arrays(dsrl_arrays(lengths=(30,) * 40))


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("made") / "data.hdf5"
    with h5py.File(path, "w") as file:
        for key, array in dsrl_arrays(lengths=(30,) * 40).items():
            file.create_dataset(key, data=array)
    return path.read_bytes()


@pytest.fixture(scope="module")
def task(episodes: Episodes) -> Task:
    return Task(
        name="Toy",
        suite="Bullet",
        dataset_file=NAME,
        episodes=40,
        observation_size=3,
        action_size=2,
        max_steps=30,
        min_return=float(episodes.returns.min()),
        max_return=float(episodes.returns.max()),
        max_cost=float(episodes.total_costs.max()),
        limits=(10.0, 20.0, 40.0),
    )


@pytest.fixture
def server(content: bytes) -> Iterator[Behaviour]:
    behaviour = Behaviour(content=content)
    handler = type("ThisHandler", (Handler,), {"behaviour": behaviour})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        behaviour.url = f"http://127.0.0.1:{running.server_address[1]}/files"  # type: ignore[attr-defined]
        yield behaviour
        running.shutdown()


@pytest.fixture
def url(server: Behaviour) -> str:
    return server.url  # type: ignore[attr-defined,no-any-return]


def leave_part(directory: Path, begun: bytes, url: str, size: int, etag: str = "one") -> Path:
    """What an earlier call that broke off left behind."""
    directory.mkdir(parents=True, exist_ok=True)
    version = hashlib.sha256(f"{url}/{NAME} {etag} {size}".encode()).hexdigest()[:12]
    part = directory / f"{NAME}.{version}.part"
    part.write_bytes(begun)
    return part


def files_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} if directory.exists() else set()


def test_the_file_lands_in_the_cache_and_a_second_call_asks_nobody(
    task: Task, server: Behaviour, url: str, content: bytes
) -> None:
    path = fetch(task, base_url=url)
    assert path == cache_directory() / NAME
    assert path.read_bytes() == content
    assert files_in(path.parent) == {NAME}
    assert [request["path"] for request in server.requests] == [f"/files/{NAME}"]
    assert fetch(task, base_url=url) == path
    assert len(server.requests) == 1


def test_the_default_host_is_the_public_repository() -> None:
    assert BASE_URL == "https://huggingface.co/datasets/YYY-45/DSRL/resolve/main"


def test_a_mirror_can_be_named_in_the_environment(
    task: Task, server: Behaviour, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACRL_DATA_URL", url + "/")
    assert fetch(task).is_file()
    assert server.requests[0]["path"] == f"/files/{NAME}"


def test_an_address_of_another_kind_is_refused(task: Task) -> None:
    with pytest.raises(TracrlError, match="'ftp://somewhere' is no address to download from: it must start with"):
        fetch(task, base_url="ftp://somewhere")


def test_a_file_that_dsrl_has_downloaded_is_taken(
    task: Task, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NAME).write_bytes(content)
    monkeypatch.setenv("DSRL_DATASET_DIR", str(tmp_path))
    assert fetch(task, base_url="http://127.0.0.1:9") == tmp_path / NAME


def test_a_dropped_connection_is_taken_up_where_it_broke(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    half = len(content) // 2
    server.send = [half, 100, None]
    path = fetch(task, base_url=url, directory=tmp_path)
    assert path.read_bytes() == content
    assert server.sent < len(content) + 2 * CHUNK  # nothing but a begun chunk was sent twice
    at = half - half % CHUNK
    assert [request.get("Range") for request in server.requests] == [None, f"bytes={at}-", f"bytes={at}-"]


def test_a_connection_that_keeps_dropping_is_fine_as_long_as_something_comes(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    server.send = [CHUNK] * 12 + [None]
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content
    assert len(server.requests) == 13


def test_a_redirect_keeps_the_range(task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path) -> None:
    server.redirect = f"/elsewhere/files/{NAME}"
    server.send = [1000, None]
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content
    assert server.requests[1]["Range"] == "bytes=1000-"


def test_a_silent_connection_is_given_up_and_taken_up_again(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DOWNLOAD_TIMEOUT", 0.2)
    server.send, server.stall = [1000, None], 1.0
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content
    assert server.requests[1]["Range"] == "bytes=1000-"


def test_a_later_call_goes_on_from_what_an_earlier_one_left(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    server.send = [5000]
    server.status = [200, 503]
    with pytest.raises(TracrlError) as caught:
        fetch(task, base_url=url, directory=tmp_path)
    assert str(caught.value) == (
        f"The download of {NAME} broke off after 0.0 MB (HTTP 503 Service Unavailable): "
        "run the command again, and it goes on from there."
    )
    (part,) = tmp_path.iterdir()
    assert part.read_bytes() == content[:5000]
    assert len(server.requests) == 1 + module.TRIES
    server.status, server.send = [200], [None]
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content
    assert server.requests[-1]["Range"] == "bytes=5000-"
    assert server.sent == len(content)
    assert files_in(tmp_path) == {NAME}


def test_a_server_that_ignores_range_is_read_from_the_start(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    server.ranges = False
    server.send = [5000, None]
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content
    assert server.sent == 5000 + len(content)


def test_a_file_that_has_changed_is_not_glued_together(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    for size, etag in ((len(content), "older"), (len(content) - 1, "one")):
        leave_part(tmp_path, b"x" * 5000, url, size, etag)
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content
    assert files_in(tmp_path) == {NAME}


def test_without_an_etag_nothing_is_built_upon(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    leave_part(tmp_path, b"x" * 5000, url, len(content), "None")
    server.etag = None
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content
    assert "Range" not in server.requests[0]


def test_a_part_of_an_earlier_version_of_tracrl_or_of_another_server_is_not_built_upon(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / f"{NAME}.part").write_bytes(b"x" * 5000)
    (tmp_path / f"{NAME}.part.json").write_text("{")
    leave_part(tmp_path, b"x" * 5000, "http://elsewhere", len(content))
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content
    assert "Range" not in server.requests[0]
    assert files_in(tmp_path) == {NAME}


def test_a_part_that_is_whole_already_is_checked_and_taken(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    leave_part(tmp_path, content, url, len(content))
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content
    assert server.requests == []


def test_a_part_that_is_too_long_is_thrown_away(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    leave_part(tmp_path, content + b"x", url, len(content))
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content


def test_a_server_without_content_length_serves(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    server.length = False
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content


def test_a_connection_closed_before_the_answer_is_made_again(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    server.hang_up = module.TRIES - 1
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content
    server.hang_up = module.TRIES
    with pytest.raises(TracrlError, match=r"could not be downloaded .*Server disconnected without sending a resp"):
        fetch(task, base_url=url, directory=tmp_path / "other")


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_server_is_asked_again(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path, status: int
) -> None:
    server.status = [status, status, 200]
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content


def test_a_server_that_stays_busy_is_given_up(task: Task, server: Behaviour, url: str, tmp_path: Path) -> None:
    server.status = [502]
    with pytest.raises(TracrlError, match=r"broke off after 0.0 MB \(HTTP 502 Bad Gateway\): run the command again"):
        fetch(task, base_url=url, directory=tmp_path)
    assert len(server.requests) == module.TRIES
    assert files_in(tmp_path) == set()


def test_a_file_that_is_not_there(task: Task, server: Behaviour, url: str, tmp_path: Path) -> None:
    server.head_status = 404
    with pytest.raises(TracrlError) as caught:
        fetch(task, base_url=url, directory=tmp_path / "new")
    assert str(caught.value) == (
        f"The server has no {NAME} (HTTP 404 Not Found at {url}/{NAME}): "
        "name a server that has it with TRACRL_DATA_URL."
    )
    assert files_in(tmp_path) == set()


def test_a_server_that_refuses(task: Task, server: Behaviour, url: str, tmp_path: Path) -> None:
    server.head_status = 403
    with pytest.raises(TracrlError, match=rf"refuses {NAME} \(HTTP 403 Forbidden at http://.*TRACRL_DATA_URL"):
        fetch(task, base_url=url, directory=tmp_path)


def test_no_server_at_all(task: Task, tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(TracrlError) as caught:
        fetch(task, base_url=f"http://127.0.0.1:{port}", directory=tmp_path / "new")
    assert str(caught.value) == (
        f"{NAME} could not be downloaded (127.0.0.1:{port}: [Errno 111] Connection refused): check the network, "
        "or name another server with TRACRL_DATA_URL."
    )
    assert files_in(tmp_path) == set()


def test_a_name_that_cannot_be_looked_up(task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(TracrlError, match=r"\(no-such-host: .*Name or service not known\): check the network"):
        fetch(task, base_url="http://no-such-host", directory=tmp_path)


def test_other_data_are_kept_aside_under_a_name_that_nothing_loads(
    task: Task, server: Behaviour, url: str, tmp_path: Path
) -> None:
    whole = io.BytesIO()
    with h5py.File(whole, "w") as file:
        for key, array in dsrl_arrays(lengths=(30,) * 12).items():
            file.create_dataset(key, data=array)
    server.content = whole.getvalue()
    with pytest.raises(TracrlError) as caught:
        fetch(task, base_url=url, directory=tmp_path)
    said = str(caught.value)
    assert said.startswith("What the server sent is not DSRL's data of Toy (12 episodes instead of 40; returns ")
    assert said.endswith(f"; it was kept aside as {tmp_path / NAME}.rejected.")
    assert files_in(tmp_path) == {f"{NAME}.rejected"}
    assert (tmp_path / f"{NAME}.rejected").read_bytes() == server.content


@pytest.mark.parametrize("sent", [b"<html>Sign in</html>", b"version https://git-lfs.github.com/spec/v1\n"])
def test_what_is_no_data_at_all_is_removed(
    task: Task, server: Behaviour, url: str, tmp_path: Path, sent: bytes
) -> None:
    server.content = sent
    with pytest.raises(
        TracrlError, match=rf"What the server sent was removed: {NAME} is not a readable HDF5 file"
    ) as caught:
        fetch(task, base_url=url, directory=tmp_path)
    assert ".part" not in str(caught.value)
    assert files_in(tmp_path) == set()


def test_a_file_cut_off_on_the_server_is_removed(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    server.content = content[: len(content) // 2]
    with pytest.raises(TracrlError, match=r"not a readable HDF5 file .*truncated file"):
        fetch(task, base_url=url, directory=tmp_path)
    assert files_in(tmp_path) == set()


def test_too_little_room_is_said_before_the_download(
    task: Task, server: Behaviour, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage._replace(free=2_000))
    with pytest.raises(TracrlError) as caught:
        fetch(task, base_url=url, directory=tmp_path)
    size = len(server.content) / 1e6
    assert str(caught.value) == (
        f"{NAME} needs {size:.1f} MB more in {tmp_path} and only 0.0 MB are free: make room and run the command again."
    )


def test_a_disk_that_fills_up_on_the_way_keeps_what_has_come(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        with pytest.raises(TracrlError) as caught:
            fetch(task, base_url=url, directory=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (part,) = tmp_path.glob("*.part")
    assert str(caught.value) == (
        f"{part} cannot be written (File too large) after 0.0 MB: "
        "make room and run the command again, and it goes on from there."
    )
    assert part.read_bytes() == content[:20_000]
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content
    assert server.requests[-1]["Range"] == "bytes=20000-"


def test_a_directory_that_cannot_be_made(task: Task, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TracrlError, match=r"file/below cannot be written to \(Not a directory\): choose another"):
        fetch(task, base_url="http://127.0.0.1:9", directory=tmp_path / "file" / "below")


def test_two_downloads_of_one_file_do_not_meet(task: Task, url: str, content: bytes, tmp_path: Path) -> None:
    part = leave_part(tmp_path, content[:10], url, len(content))
    with (
        Claim(tmp_path / f".{NAME}.claim"),
        pytest.raises(TracrlError, match=rf"Process \d+ on .* is at work in {tmp_path}: wait until it has ended"),
    ):
        fetch(task, base_url=url, directory=tmp_path)
    assert part.read_bytes() == content[:10]


@pytest.mark.parametrize("where", ["body", "headers"])
def test_a_server_that_trickles_is_given_up(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setenv("TRACRL_DATA_PATIENCE", "0.5")
    leave_part(tmp_path, content[:5000], url, len(content))
    server.trickle, server.slow_headers = (0.02, 0.0) if where == "body" else (0.0, 0.4)
    begun = time.monotonic()
    with pytest.raises(TracrlError) as caught:
        fetch(task, base_url=url, directory=tmp_path)
    assert time.monotonic() - begun < 3
    assert str(caught.value) == (
        f"The download of {NAME} was given up after 0.0 MB: too little came in 0.5 s. Run the command again "
        "later, and it goes on from there, or name another server with TRACRL_DATA_URL."
    )
    if where == "body":
        (part,) = tmp_path.iterdir()
        assert part.read_bytes() == content[:5000]


@pytest.mark.parametrize("seconds", ["soon", "0", "-1", "nan", "inf", "1e9"])
def test_a_patience_that_is_none(
    task: Task, url: str, tmp_path: Path, seconds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACRL_DATA_PATIENCE", seconds)
    with pytest.raises(TracrlError, match=f"TRACRL_DATA_PATIENCE is '{seconds}'; expected seconds, above 0 and below"):
        fetch(task, base_url=url, directory=tmp_path)
    assert files_in(tmp_path) == set()


def test_the_librarys_own_lines_stay_away(server: Behaviour, url: str, tmp_path: Path) -> None:
    """In a process of its own, in which the library has not been imported yet."""
    server.send = [10]
    without_pauses = "import sys, time; time.sleep = lambda s: None; from tracrl.cli import main; sys.exit(main())"
    words = ["data", "fetch", "BallRun", "--out", str(tmp_path / "made")]
    done = subprocess.run(
        [sys.executable, "-c", without_pauses, *words],
        env={**os.environ, "TRACRL_DATA_URL": url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert [line[:24] for line in done.stderr.splitlines()] == ["tracrl: The download of "]


def test_a_download_has_a_longest_time(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LONGEST", 0.5)
    monkeypatch.setattr(huggingface_hub.constants, "DOWNLOAD_CHUNK_SIZE", 10)
    server.trickle = 0.001
    with pytest.raises(
        TracrlError, match=r"was given up after 0\.\d MB: it was not done after 0\.5 s\. Run the command"
    ):
        fetch(task, base_url=url, directory=tmp_path)
    (part,) = tmp_path.iterdir()
    assert content.startswith(part.read_bytes())
    size = part.stat().st_size
    SLEEP(0.1)
    assert part.stat().st_size == size  # nothing writes to it any more
    server.trickle = 0
    assert fetch(task, base_url=url, directory=tmp_path).read_bytes() == content


@pytest.mark.parametrize("length", ["5", "-1", "many", "99999999", ""])
def test_an_odd_length_after_a_drop(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path, length: str
) -> None:
    server.send, server.odd_length = [5000, None], length
    with pytest.raises(TracrlError, match=rf"^The download of {NAME} broke off after 0.\d MB \(.*\): run the"):
        fetch(task, base_url=url, directory=tmp_path)
    assert NAME not in files_in(tmp_path)


@pytest.mark.parametrize(
    "address",
    ["", "nowhere", "http://", "http://[::1", "http://host:port", "http://host:99999", "file:///etc", "\udcff"],
)
def test_addresses_that_are_none(task: Task, tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not address:
        monkeypatch.setattr(module, "BASE_URL", "")
    with pytest.raises(TracrlError, match="is no address to download from: it must start with http:// or https://"):
        fetch(task, base_url=address, directory=tmp_path)


@pytest.mark.parametrize(
    "target",
    ["file:///etc/passwd", "http://", "http://[::1", "http://host:port/x", "http://caf\xe9/x", "http://\xff\xfe"],
)
def test_a_redirect_to_an_address_that_is_none(
    task: Task, server: Behaviour, url: str, tmp_path: Path, target: str
) -> None:
    server.redirect = target
    with pytest.raises(TracrlError) as caught:
        fetch(task, base_url=url, directory=tmp_path)
    assert NAME in str(caught.value)
    assert "\n" not in str(caught.value)
    assert files_in(tmp_path) == set()


def test_letters_outside_latin_1_in_the_address(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    assert fetch(task, base_url=f"{url}/данные", directory=tmp_path).read_bytes() == content
    assert server.requests[0]["path"].startswith("/files/%D0%B4")
    with pytest.raises(TracrlError, match=f"{NAME} could not be downloaded"):
        fetch(task, base_url="http://данные.invalid", directory=tmp_path / "other")


def test_another_checksum_than_the_servers(
    task: Task, server: Behaviour, url: str, content: bytes, tmp_path: Path
) -> None:
    server.etag = f'"{hashlib.sha256(b"other").hexdigest()}"'
    with pytest.raises(TracrlError, match=r"is not what the server has \(another SHA-256\) and was removed"):
        fetch(task, base_url=url, directory=tmp_path)
    assert files_in(tmp_path) == set()
    server.etag = f'"{hashlib.sha256(content).hexdigest()}"'
    assert fetch(task, base_url=url, directory=tmp_path).is_file()


def test_progress_is_shown_where_there_is_a_console(task: Task, url: str, tmp_path: Path) -> None:
    shown = io.StringIO()
    fetch(task, base_url=url, directory=tmp_path, console=Console(file=shown, force_terminal=True, width=120))
    assert NAME in shown.getvalue()
    assert "kB" in shown.getvalue()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"observation_size": 4}, "observations of size 3 instead of 4"),
        ({"action_size": 1}, "actions of size 2 instead of 1"),
        ({"episodes": 41}, "40 episodes instead of 41"),
        ({"max_steps": 29}, "an episode of 30 steps, where 29 are the most"),
        ({"min_return": -500.0}, "returns from "),
        ({"max_return": 500.0}, "returns from "),
        ({"max_cost": 90.0}, "a highest cost of "),
    ],
)
def test_verify_says_what_differs(
    task: Task, content: bytes, tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    path = tmp_path / NAME
    path.write_bytes(content)
    assert len(verify(path, task)) == 40
    with pytest.raises(TracrlError, match=f"{NAME} is not DSRL's data of Toy: {said}"):
        verify(path, replace(task, **changes))


def test_verify_takes_actions_beyond_the_box_as_dsrl_has_them(task: Task, tmp_path: Path) -> None:
    arrays = dsrl_arrays(lengths=(30,) * 40)
    arrays["actions"] = arrays["actions"] * np.float32(3)
    with h5py.File(tmp_path / NAME, "w") as file:
        for key, array in arrays.items():
            file.create_dataset(key, data=array)
    assert np.abs(verify(tmp_path / NAME, task).actions).max() == 1
