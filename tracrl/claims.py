"""One process at a time in a run directory, also across machines that share the storage.

A claim is a file made by its owner alone (``O_EXCL``) and touched every few seconds. It may be taken over when its
owner is known to be dead (same machine), or has not touched it for a minute (another machine). Ages are differences of
the storage's own time stamps, so the machines' clocks need not agree.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tracrl.errors import TracrlError
from tracrl.files import writing

BEAT_SECONDS = 5.0
STALE_SECONDS = 60.0
LOOKS = 3
"""at a claim that cannot be made out, before it counts as lost"""


class BusyError(TracrlError):
    """Another process is at work in the claim's directory."""

    def __init__(self, claim: Path):
        other = read_claim(claim) or {}
        perhaps = "" if other.get("machine") == _machine() else ", or was less than a minute ago"
        super().__init__(
            f"Process {other.get('pid', '?')} on {other.get('host', '?')} is at work in {claim.parent}{perhaps}: "
            "wait until it has ended, or choose another --out."
        )


class ClaimLostError(TracrlError):
    """What was ours is another's now, or is gone: to write there would be to disturb."""

    exit_code = 75


class Claim:
    """``with Claim(path):`` the work is ours until the end of the block; :class:`BusyError` if it is another's.

    It can be lost in between: when this process stood still for so long that another took over, or when somebody
    removed the directory. Then ``lost`` is set, and :meth:`check` raises; the work itself is not interrupted.
    """

    def __init__(self, path: Path, patience: float = 0.0):
        """``patience``: wait so many seconds for the other one."""
        self.path, self.patience = path, patience
        self.owner = {**this_process(), "token": secrets.token_hex(8)}
        self.lost = threading.Event()
        self._over = threading.Event()
        self._looking = threading.Lock()
        self._heartbeat = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Self:
        deadline = time.monotonic() + self.patience
        with writing(self.path):
            while not self._take():
                if time.monotonic() >= deadline:
                    raise BusyError(self.path)
                time.sleep(min(1.0, max(self.patience, 0.1)))
        self._heartbeat.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._heartbeat.join()
        with contextlib.suppress(OSError):  # storage that is away; the claim then counts as a dead process's
            if self._is_mine():
                self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # where nothing was done, nothing is left behind
            self.path.parent.rmdir()

    def check(self, look: bool = False) -> None:
        """Raise :class:`ClaimLostError` if the claim is lost: to be called between two pieces of work.

        ``look`` at the claim now, as before writing; else what counts is what the last look found, seconds ago.
        """
        if look and not self.lost.is_set():
            self._look()
        if not self.lost.is_set():
            return
        other = read_claim(self.path)
        if other:
            raise ClaimLostError(
                f"Process {other.get('pid', '?')} on {other.get('host', '?')} has taken over {self.path.parent}, as "
                "this one stood still for too long: stopped, to leave it to the other."
            )
        raise ClaimLostError(f"{self.path.parent} was removed or moved while it was worked in: stopped.")

    def _take(self) -> bool:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._create()
        except FileNotFoundError:  # in this very moment another left the directory empty, and removed it
            return self._take()
        except FileExistsError:
            return alive(self.path) is False and self._take_over()
        return True

    def _create(self) -> None:
        handle = os.open(self.path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(self.owner, file)
        except OSError:  # a full disk: an empty claim would keep others away for nothing
            self.path.unlink(missing_ok=True)
            raise

    def _take_over(self) -> bool:
        """Remove the dead owner's claim and try for one's own.

        One at a time may do so, and looks again first: what was a dead one's may by now be another's who was faster.
        """
        turn = self.path.with_name(f".{self.path.name}.part")
        try:
            os.close(os.open(turn, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            if alive(turn) is not False:
                return False
            turn.unlink(missing_ok=True)  # a minute old: whoever had it was killed
            return self._take()
        try:
            if alive(self.path) is False:
                self.path.unlink(missing_ok=True)
            return self._take()
        finally:
            turn.unlink(missing_ok=True)

    def _is_mine(self) -> bool | None:
        """None: it is not there, or cannot be made out."""
        try:
            return json.loads(self.path.read_text(encoding="utf-8"))["token"] == self.owner["token"]
        except (FileNotFoundError, NotADirectoryError, ValueError, TypeError, KeyError):
            return None

    def _look(self) -> None:
        """See whether the claim is still ours, and keep it fresh."""
        with self._looking, contextlib.suppress(OSError):
            # An OSError is storage that is away for a moment; if another takes over meanwhile, a later look finds it.
            for again in range(LOOKS):
                self._over.wait(again * BEAT_SECONDS / 10)  # perhaps it is being written at this moment
                mine = self._is_mine()
                if mine:
                    os.utime(self.path)
                    return
                if mine is None and not self.path.exists():
                    try:
                        self._create()  # somebody removed no more than the claim: it is free, and ours again
                    except FileNotFoundError:  # the whole directory is gone
                        break
                    except FileExistsError:  # another was faster
                        continue
                    return
            self.lost.set()

    def _beat(self) -> None:
        while not self.lost.is_set() and not self._over.wait(BEAT_SECONDS):
            self._look()


def this_process() -> dict[str, Any]:
    """What tells a process from every other."""
    pid = os.getpid()
    return {"host": socket.gethostname(), "machine": _machine(), "pid": pid, "started": _start_of(pid)}


def read_claim(path: Path) -> dict[str, Any] | None:
    """Who holds a claim; None where there is none. One that is just being written has no owner yet."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def alive(path: Path) -> bool | None:
    """Whether the claim's owner is at work; None where there is no claim."""
    owner = read_claim(path)
    if owner is None:
        return None
    if owner.get("machine") == _machine():
        return _start_of(owner.get("pid")) == owner.get("started")
    probe = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")  # no content of a run directory
    try:
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime < STALE_SECONDS
    except FileNotFoundError:
        return None
    except OSError:  # a place where nothing can be written, so that nothing can be taken over either
        return True
    finally:
        probe.unlink(missing_ok=True)


def _machine() -> str:
    """The running kernel and the space that process numbers are valid in (containers have their own)."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    with contextlib.suppress(OSError):
        return f"{boot.read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    return socket.gethostname()


def _start_of(pid: Any) -> str | None:
    """When a process began, so that a number that is used again is not taken for the same process; None for the dead,
    also for those whose parent has not asked yet how they ended."""
    with contextlib.suppress(OSError, IndexError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else fields[19]
    return None
