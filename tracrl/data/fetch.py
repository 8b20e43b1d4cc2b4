"""DSRL's data sets from their public host: resumed when a connection drops, checked before they are used.

While a download runs, ``<file>.part`` holds what has arrived and ``<file>.part.json`` says which version of
the file it is part of. The file takes its own name only after it was opened and found to be the task's data.
"""

from __future__ import annotations

import contextlib
import fcntl
import http.client
import json
import os
import re
import shutil
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import read_hdf5
from tracrl.data.locate import cache_directory, search_path
from tracrl.errors import TracrlError
from tracrl.files import write_json
from tracrl.tasks.table import Task

BASE_URL = "https://huggingface.co/datasets/YYY-45/DSRL/resolve/main"
"""Where DSRL's files lie now; ``$TRACRL_DATA_URL`` names a mirror."""

TIMEOUT = 30.0  # seconds without a byte
TRIES = 5  # failures in a row, each without a new byte in between
FIRST_PAUSE = 1.0  # seconds before the second try, doubled before each further one
CHUNK = 1 << 18

# DSRL's constants were taken from these files, summed in float32; but AntRun and CarButton2 have the same
# lowest return, which can be true of one of them only. Another task's file is off by far more than this.
TOLERANCE = 0.02

_PASSING = {408, 425, 429, 500, 502, 503, 504}  # answers worth asking again for


def fetch(
    task: Task, *, directory: Path | None = None, base_url: str | None = None, console: Console | None = None
) -> Path:
    """DSRL's file of a task, downloaded into ``directory`` (default: tracrl's cache) if it is not there.

    Without a ``directory``, a file that lies anywhere on the search path is taken as it is. ``console`` shows
    a progress bar; without one nothing is printed.
    """
    places = [place for _, place in search_path()] if directory is None else [directory]
    for place in places:
        if (place / task.dataset_file).is_file():
            return place / task.dataset_file
    directory = cache_directory() if directory is None else directory
    base = (base_url or os.environ.get("TRACRL_DATA_URL") or BASE_URL).rstrip("/")
    if urllib.parse.urlsplit(base).scheme not in ("http", "https"):
        raise TracrlError(f"{base!r} is no address to download from: it must start with http:// or https://.")
    path = directory / task.dataset_file
    part = path.with_name(path.name + ".part")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = part.open("ab", buffering=0)
    except OSError as error:
        raise TracrlError(f"{directory} cannot be written to ({error.strerror}): choose another directory.") from error
    with file, _only_one(file, part):
        try:
            _Download(f"{base}/{urllib.parse.quote(path.name)}", file, part, path.name, console).run()
            with contextlib.suppress(OSError):
                # HDF5 locks what it reads: share the lock with that, still closed to other downloads.
                fcntl.flock(file, fcntl.LOCK_SH)
            _accept(part, path, task)
        finally:
            if os.fstat(file.fileno()).st_size == 0:  # nothing came, so there is nothing to go on from
                part.unlink(missing_ok=True)
                _record(part).unlink(missing_ok=True)
    return path


def verify(path: Path, task: Task) -> Episodes:
    """The episodes of a file, if they are DSRL's data of the task; an error that says what differs if not."""
    episodes = _opened(path)
    if differing := "; ".join(_differences(episodes, task)):
        raise TracrlError(f"{path.name} is not DSRL's data of {task.name}: {differing}.")
    return episodes


def _opened(path: Path) -> Episodes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what is odd in the data is said when they are loaded for use
        return read_hdf5(path, clip_actions=True)


def _differences(episodes: Episodes, task: Task) -> Iterator[str]:
    if episodes.observation_size != task.observation_size:
        yield f"observations of size {episodes.observation_size} instead of {task.observation_size}"
    if episodes.action_size != task.action_size:
        yield f"actions of size {episodes.action_size} instead of {task.action_size}"
    if abs(len(episodes) - task.episodes) > TOLERANCE * task.episodes:
        yield f"{len(episodes)} episodes instead of {task.episodes}"
    if (longest := int(episodes.lengths.max())) > task.max_steps:
        yield f"an episode of {longest} steps, where {task.max_steps} are the most"
    low, high = float(episodes.returns.min()), float(episodes.returns.max())
    slack = TOLERANCE * (task.max_return - task.min_return)
    if abs(low - task.min_return) > slack or abs(high - task.max_return) > slack:
        yield (f"returns from {low:.4g} to {high:.4g} instead of {task.min_return:.4g} to {task.max_return:.4g}")
    if abs((cost := float(episodes.total_costs.max())) - task.max_cost) > TOLERANCE * task.max_cost + 1:
        yield f"a highest cost of {cost:.4g} instead of {task.max_cost:.4g}"


def _accept(part: Path, path: Path, task: Task) -> None:
    """Give a whole download its name if it is the task's data; otherwise put it where nothing loads it."""
    try:
        differing = "; ".join(_differences(_opened(part), task))
    except TracrlError as error:
        part.unlink()
        _record(part).unlink(missing_ok=True)
        said = str(error).replace(str(part), path.name)
        raise TracrlError(f"What the server sent was removed: {said}") from error
    _record(part).unlink(missing_ok=True)
    if differing:
        aside = path.with_name(path.name + ".rejected")
        part.replace(aside)
        raise TracrlError(
            f"What the server sent is not DSRL's data of {task.name} ({differing}); it was kept aside as {aside}."
        )
    part.replace(path)


def _record(part: Path) -> Path:
    return part.with_name(part.name + ".json")


@contextlib.contextmanager
def _only_one(file: BinaryIO, part: Path) -> Iterator[None]:
    """Two downloads into one file would ruin both, so the second one ends here."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise TracrlError(f"Another process is downloading {part.name.removesuffix('.part')}: wait for it.") from error
    except OSError:
        pass  # a file system without locks: go on as if alone
    yield


@dataclass(frozen=True)
class _Version:
    """What tells one version of a file on a server from another."""

    url: str
    etag: str | None
    modified: str | None
    size: int | None

    @classmethod
    def read(cls, record: Path) -> _Version | None:
        try:
            return cls(**json.loads(record.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def validator(self) -> str | None:
        """For If-Range, which takes no weak ETag."""
        if self.etag and not self.etag.startswith("W/"):
            return self.etag
        return None if self.etag else self.modified


class _DroppedError(Exception):
    """The connection ended before the file did, or the server asks to come back later."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.pause = pause


class _Download:
    """One file's way here, over as many connections as it takes."""

    def __init__(self, url: str, file: BinaryIO, part: Path, name: str, console: Console | None) -> None:
        self.url, self.file, self.part, self.name = url, file, part, name
        self.console = console
        self.have = os.fstat(file.fileno()).st_size
        self.version = _Version.read(_record(part))
        self.connected = False
        if self.version is None or self.version.url != url:
            self._start_again()

    def run(self) -> None:
        with self._bar() as show:
            show(self.have, self.version.size if self.version else None)
            failures = 0
            while True:
                before = self.have
                try:
                    if self._transfer(show):
                        return
                    failures += 1  # the server sent us back to the start; not for ever
                    reason, pause = "the server's answers do not fit together", 0.0
                except _DroppedError as dropped:
                    failures = 1 if self.have > before else failures + 1
                    reason, pause = str(dropped), dropped.pause or FIRST_PAUSE * 2 ** (failures - 1)
                if failures >= TRIES:
                    raise TracrlError(
                        f"The download of {self.name} broke off after {_megabytes(self.have)} "
                        f"and {TRIES} tries ({reason}): run the command again, and it goes on from there."
                    )
                time.sleep(pause)

    def _transfer(self, show: Callable[[int, int | None], None]) -> bool:
        """One connection; True when the file is whole, False when it has to start again."""
        try:
            response = urllib.request.urlopen(self._request(), timeout=TIMEOUT)
        except urllib.error.HTTPError as error:
            with error:
                return self._refused(error)
        except (OSError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        with response:
            self.connected = True
            if response.status == http.HTTPStatus.PARTIAL_CONTENT:
                if not self._continues(response.headers):
                    self._start_again()
                    return False
            else:
                # 200: the server ignores Range, or the file there is no longer the one we have a part of.
                self._start_again()
                self._remember(response.headers)
            assert self.version is not None
            size = self.version.size
            self._check_space(size)
            while chunk := self._read(response):
                self._write(chunk)
                show(self.have, size)
            if size is not None and self.have < size:
                raise _DroppedError(f"the connection closed with {_megabytes(size - self.have)} to go")
            return True

    def _request(self) -> urllib.request.Request:
        # "identity": a compressed answer would have other offsets than the file.
        headers = {"User-Agent": "tracrl", "Accept-Encoding": "identity"}
        if self.have and self.version is not None:
            headers["Range"] = f"bytes={self.have}-"
            if self.version.validator:
                headers["If-Range"] = self.version.validator
        return urllib.request.Request(self.url, headers=headers)

    def _continues(self, headers: Any) -> bool:
        """Whether a 206 answer is the rest of the very file whose beginning we have."""
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", headers.get("Content-Range", "").strip())
        known = self.version
        if found is None or known is None or int(found[1]) != self.have:
            return False
        size = None if found[2] == "*" else int(found[2])
        etag = headers.get("ETag")
        return size == known.size and (etag is None or etag == known.etag)

    def _refused(self, error: urllib.error.HTTPError) -> bool:
        self.connected = True
        if error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE and self.have:
            # Nothing comes after what we have: it is the whole file, or more than the server's file has.
            if self.version is not None and self.have == self.version.size:
                return True
            self._start_again()
            return False
        if error.code in _PASSING:
            later = error.headers.get("Retry-After", "")
            raise _DroppedError(
                f"HTTP {error.code} {error.reason}", min(float(later), 60.0) if later.isdigit() else None
            )
        if error.code in (http.HTTPStatus.NOT_FOUND, http.HTTPStatus.GONE):
            raise TracrlError(
                f"The server has no {self.name} (HTTP {error.code} at {self.url}): "
                "name a server that has it with TRACRL_DATA_URL."
            )
        raise TracrlError(
            f"The server refuses {self.name} (HTTP {error.code} {error.reason} at {self.url}): "
            "name another server with TRACRL_DATA_URL."
        )

    def _unreachable(self, error: OSError | http.client.HTTPException) -> Exception:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        host = urllib.parse.urlsplit(self.url).netloc
        if isinstance(reason, TimeoutError):
            why = f"no answer from {host} within {TIMEOUT:g} s"
        elif isinstance(reason, socket.gaierror):
            why = f"the name {host} could not be looked up"
        else:
            why = f"{host}: {getattr(reason, 'strerror', None) or str(reason) or type(reason).__name__}"
        # A host that never answered is not asked again: most likely there is no network.
        if self.connected or isinstance(reason, http.client.HTTPException | ConnectionResetError):
            return _DroppedError(why)
        return TracrlError(
            f"{self.name} could not be downloaded ({why}): check the network, or name another server with "
            "TRACRL_DATA_URL."
        )

    def _read(self, response: http.client.HTTPResponse) -> bytes:
        try:
            return response.read1(CHUNK)  # what has come; read() would lose it if the rest does not
        except http.client.IncompleteRead as error:
            if error.partial:
                self._write(error.partial)
            raise _DroppedError("the connection closed in the middle") from error
        except TimeoutError as error:
            raise _DroppedError(f"nothing came for {TIMEOUT:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise _DroppedError(str(error) or type(error).__name__) from error

    def _write(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        try:
            while rest:
                written = self.file.write(rest)
                self.have += written
                rest = rest[written:]
        except OSError as error:
            raise TracrlError(
                f"{self.part} cannot be written ({error.strerror or error}) after {_megabytes(self.have)}: "
                "make room and run the command again, and it goes on from there."
            ) from error

    def _check_space(self, size: int | None) -> None:
        if size is None:
            return
        free = shutil.disk_usage(self.part.parent).free
        if size - self.have > free:
            raise TracrlError(
                f"{self.name} needs {_megabytes(size - self.have)} more in {self.part.parent} and only "
                f"{_megabytes(free)} are free: make room and run the command again."
            )

    def _start_again(self) -> None:
        # Opened for appending, so the next write goes to the new end.
        self.file.truncate(0)
        self.have = 0
        self.version = None

    def _remember(self, headers: Any) -> None:
        length = headers.get("Content-Length", "")
        self.version = _Version(
            url=self.url,
            etag=headers.get("ETag"),
            modified=headers.get("Last-Modified"),
            size=int(length) if length.isdigit() else None,
        )
        write_json(_record(self.part), asdict(self.version))

    @contextlib.contextmanager
    def _bar(self) -> Iterator[Callable[[int, int | None], None]]:
        if self.console is None:
            yield lambda have, size: None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            bar = progress.add_task(self.name, total=None)
            yield lambda have, size: progress.update(bar, completed=have, total=size)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
