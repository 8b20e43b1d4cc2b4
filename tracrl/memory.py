"""How much memory can be had."""

from __future__ import annotations

import contextlib
import resource
from pathlib import Path

from tracrl.errors import TracrlError

_CGROUPS = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes that can be had: the machine's, or what a container or ``ulimit -v`` allows."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    for limit, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        with contextlib.suppress(OSError, ValueError):
            free = min(free, int((_CGROUPS / limit).read_text()) - int((_CGROUPS / used).read_text()))
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        free = min(free, allowed - pages * resource.getpagesize())
    return max(free, 0)


def require_memory(needed: int, where: str) -> None:
    """Refuse to read what would not fit."""
    if needed > (free := available_memory()):
        raise TracrlError(
            f"{where} needs {_gigabytes(needed)} of memory when it is unpacked, and {_gigabytes(free)} can be had: "
            "take fewer episodes, or a machine with more memory."
        )


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:,.1f} GB"
