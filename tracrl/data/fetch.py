"""DSRL's data sets from their public host: resumed when a connection drops, checked before they are used.

``huggingface_hub`` asks what the server has and transfers it. By hand are only the part that a later call goes on from
(the library throws away what it has when a download fails) and the times after which a download is given up (the
library waits for ever as long as a byte comes now and then).

While a download runs, ``<file>.<version>.part`` holds what has arrived of that version of the file on the server. The
file takes its own name only after it was opened and found to be the task's data.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import re
import shutil
import threading
import time
import urllib.parse
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from tracrl.claims import Claim
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import as_unicode, is_file, read_hdf5
from tracrl.data.locate import cache_directory, search_path
from tracrl.errors import TracrlError
from tracrl.tasks.table import Task

BASE_URL = "https://huggingface.co/datasets/YYY-45/DSRL/resolve/main"
"""Where DSRL's files lie now; ``$TRACRL_DATA_URL`` names a mirror."""

TIMEOUT = 30.0  # seconds for the server to say what it has
LEAST = 1 << 20  # bytes that must arrive, or all that is left, in PATIENCE
PATIENCE = 300.0
"""Seconds; the library hands on chunks of 10 MB, so this is 33 kB a second at first. ``$TRACRL_DATA_PATIENCE`` names
other ones."""
LONGEST = 6 * 3600.0  # seconds for one file
TRIES = 3  # failures in a row, each with less than that in between; the library has tried some times by then
PAUSE = 2.0  # seconds before each further try

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
        if is_file(place / task.dataset_file):
            return place / task.dataset_file
    directory = cache_directory() if directory is None else directory
    base = _checked_address(base_url or os.environ.get("TRACRL_DATA_URL") or BASE_URL)
    path = directory / task.dataset_file
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise TracrlError(f"{directory} cannot be written to ({error.strerror}): choose another directory.") from error
    with Claim(directory / f".{path.name}.claim"):
        download = _Download(f"{base}/{urllib.parse.quote(path.name)}", path)
        part = download.run(console)
        _accept(part, path, task)
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
        said = str(error).replace(str(part), path.name)
        raise TracrlError(f"What the server sent was removed: {said}") from error
    if differing:
        aside = path.with_name(path.name + ".rejected")
        part.replace(aside)
        raise TracrlError(
            f"What the server sent is not DSRL's data of {task.name} ({differing}); it was kept aside as {aside}."
        )
    part.replace(path)


def _checked_address(base: str) -> str:
    with contextlib.suppress(ValueError):  # of brackets without an end, and of ports that are no numbers
        parts = urllib.parse.urlsplit(base)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0:
            return base.rstrip("/")
    raise TracrlError(
        f"{as_unicode(base)!r} is no address to download from: it must start with http:// or https:// and a host."
    )


def _patience() -> float:
    given = os.environ.get("TRACRL_DATA_PATIENCE")
    if not given:
        return PATIENCE
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(given)) < LONGEST:
            return seconds
    raise TracrlError(
        f"TRACRL_DATA_PATIENCE is {as_unicode(given)!r:.80}; expected seconds, above 0 and below {LONGEST:g}."
    )


class _Download:
    """One file's way here, over as many connections as it takes."""

    def __init__(self, url: str, path: Path) -> None:
        self.url, self.path = url, path
        self.part: Path | None = None
        self.size: int | None = None
        self.sha256: str | None = None
        self.given_up = threading.Event()
        self.error: BaseException | None = None

    @property
    def have(self) -> int:
        with contextlib.suppress(OSError):
            return self.part.stat().st_size if self.part is not None else 0
        return 0

    def run(self, console: Console | None) -> Path:
        """The whole file, under its name as a part."""
        # In a thread that can be left to itself: whatever it waits for, this one sees when nothing arrives.
        worker = threading.Thread(target=self._work, daemon=True)
        patience = _patience()
        try:
            with _quiet_library(), _bar(console, self.path.name) as show:
                worker.start()
                self._watch(worker, patience, show)
            if self.error is not None:
                raise self._sentence(self.error) from self.error
        finally:
            self.given_up.set()
            if self.part is not None and self.have == 0:  # nothing came, so there is nothing to go on from
                self.part.unlink(missing_ok=True)
        assert self.part is not None
        self._check_checksum(self.part)
        return self.part

    def _watch(self, worker: threading.Thread, patience: float, show: Callable[[int, int | None], None]) -> None:
        begun = grown = time.monotonic()
        before = self.have
        while worker.is_alive():
            worker.join(0.05)
            now, have = time.monotonic(), self.have
            show(have, self.size)
            if not 0 <= have - before < LEAST:
                before, grown = have, now
            if now - grown > patience or now - begun > LONGEST:
                seconds = patience if now - grown > patience else LONGEST
                kind = "too little came in" if now - grown > patience else "it was not done after"
                raise TracrlError(
                    f"The download of {self.path.name} was given up after {_megabytes(have)}: {kind} {seconds:g} s. "
                    "Run the command again later, and it goes on from there, or name another server with "
                    "TRACRL_DATA_URL."
                )
        show(self.have, self.size)

    def _work(self) -> None:
        failures = 0
        while True:
            before = self.have
            try:
                self._transfer()
                return
            except ImportError as error:
                self.error = TracrlError(f"Downloads need a package that is missing ({error}): install tracrl anew.")
                return
            except Exception as error:
                failures = 1 if self.have - before >= LEAST else failures + 1
                if failures >= TRIES or not self._is_passing(error):
                    self.error = error
                    return
                time.sleep(PAUSE)

    def _transfer(self) -> None:
        from huggingface_hub import get_hf_file_metadata
        from huggingface_hub.file_download import http_get

        # Without a token: the server may be anybody's. Without compression: the file has other offsets than that.
        found = get_hf_file_metadata(self.url, token=False, timeout=TIMEOUT)
        self._prepare(found.etag, found.size)
        assert self.part is not None
        with self.part.open("ab") as file:
            guarded: Any = _Guarded(file, self.given_up)
            http_get(
                found.location,
                guarded,
                resume_size=self.have,
                headers={"User-Agent": "tracrl", "Accept-Encoding": "identity"},
                expected_size=found.size,
                displayed_filename=self.path.name,
                tqdm_class=_no_bar(),
            )

    def _prepare(self, etag: str | None, size: int | None) -> None:
        """The part to go on with: that of the same version; all others go."""
        version = hashlib.sha256(f"{self.url} {etag} {size}".encode()).hexdigest()[:12]
        self.part = self.path.with_name(f"{self.path.name}.{version}.part")
        self.size = size
        self.sha256 = etag if etag and re.fullmatch("[0-9a-f]{64}", etag) else None
        for other in self.path.parent.glob(f"{self.path.name}*.part*"):
            # Where nothing tells versions apart, a part may be of another one.
            if other != self.part or etag is None or size is None or other.stat().st_size > size:
                other.unlink(missing_ok=True)
        if size is not None and size - self.have > (free := shutil.disk_usage(self.path.parent).free):
            raise TracrlError(
                f"{self.path.name} needs {_megabytes(size - self.have)} more in {self.path.parent} and only "
                f"{_megabytes(free)} are free: make room and run the command again."
            )

    def _is_passing(self, error: Exception) -> bool:
        """Whether it may be different the next time: not for a host that never answered, nor for a full disk."""
        import httpx2  # what huggingface_hub speaks HTTP with

        if status := _status_of(error):
            return status in _PASSING
        if isinstance(error, TracrlError) or (isinstance(error, OSError) and error.errno is not None):
            return False
        # A connection may be closed just when it is used again.
        return self.part is not None or isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError)

    def _sentence(self, error: BaseException) -> Exception:
        from huggingface_hub.errors import HfHubHTTPError

        if isinstance(error, TracrlError):
            return error
        name, have = self.path.name, _megabytes(self.have)
        why = f"{urllib.parse.urlsplit(self.url).netloc}: {_first_line(error)}"
        if status := _status_of(error):
            assert isinstance(error, HfHubHTTPError)
            answer = f"HTTP {status} {error.response.reason_phrase}".rstrip()
            if status in (404, 410):
                return TracrlError(
                    f"The server has no {name} ({answer} at {self.url}): name a server that has it with "
                    "TRACRL_DATA_URL."
                )
            if status not in _PASSING:
                return TracrlError(
                    f"The server refuses {name} ({answer} at {self.url}): name another server with TRACRL_DATA_URL."
                )
            why = answer
        elif isinstance(error, OSError) and error.errno is not None:
            return TracrlError(
                f"{self.part or self.path} cannot be written ({error.strerror or error}) after {have}: make room and "
                "run the command again, and it goes on from there."
            )
        if self.part is None:
            return TracrlError(
                f"{name} could not be downloaded ({why}): check the network, or name another server with "
                "TRACRL_DATA_URL."
            )
        return TracrlError(
            f"The download of {name} broke off after {have} ({why}): run the command again, and it goes on from there."
        )

    def _check_checksum(self, part: Path) -> None:
        if self.sha256 is None:
            return
        with part.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() == self.sha256:
                return
        part.unlink()
        raise TracrlError(
            f"What came of {self.path.name} is not what the server has (another SHA-256) and was removed: run the "
            "command again."
        )


class _Guarded:
    """A file that a download that was given up can no longer write to."""

    def __init__(self, file: Any, closed: threading.Event):
        self._file, self._closed = file, closed

    def write(self, chunk: bytes) -> int:
        if self._closed.is_set():
            raise ValueError("given up")
        written: int = self._file.write(chunk)
        self._file.flush()
        return written

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def _status_of(error: BaseException) -> int | None:
    """The status of a server's answer, where it is the answer that was no good."""
    from huggingface_hub.errors import HfHubHTTPError

    return error.response.status_code if isinstance(error, HfHubHTTPError) else None


@contextlib.contextmanager
def _quiet_library() -> Iterator[None]:
    """Each further try is not worth two lines: what counts is said at the end."""
    with contextlib.suppress(ImportError):
        importlib.import_module("huggingface_hub.utils.logging")  # which sets the level when it is imported
    logger = logging.getLogger("huggingface_hub")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


def _no_bar() -> Any:
    """The library's progress bar, made silent: ours is drawn by the thread that watches."""
    library: Any = importlib.import_module("huggingface_hub.utils")

    def initialise(self: Any, *words: Any, **options: Any) -> None:
        library.tqdm.__init__(self, *words, **{**options, "disable": True})

    return type("NoBar", (library.tqdm,), {"__init__": initialise})


@contextlib.contextmanager
def _bar(console: Console | None, name: str) -> Iterator[Callable[[int, int | None], None]]:
    if console is None:
        yield lambda have, size: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as progress:
        bar = progress.add_task(name, total=None)
        yield lambda have, size: progress.update(bar, completed=have, total=size)


def _first_line(error: BaseException) -> str:
    return as_unicode((str(error).splitlines() or [type(error).__name__])[0])[:200]


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
