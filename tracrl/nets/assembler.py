"""The assembler of the kernels of TraC's network (:mod:`tracrl.nets.fused`): the newest that Triton brings along.

Triton has two, ptxas for most GPUs and a newer one for the newest GPUs, which assembles for the others as well. Triton
3.6 brings 12.8, by which fast forms of these kernels are wrong on an H200 at some sizes, and 12.9, by which none was.
Every other kernel of the process is left to the assembler that Triton takes for it.

Triton has no setting for a single kernel, and reads that of the process whenever it compiles, which is within a launch.
So it is set for the time of each launch of these kernels, and of what another thread may compile in that very time.
"""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch

CHOSEN = "TRITON_PTXAS_PATH"
"""the variable by which a user names the assembler of all kernels: then it is that of these, too. Where nobody did,
torch.compile sets it to torch's own; a training asks before it compiles."""
_alone = threading.Lock()


class Assembler(NamedTuple):
    path: str
    version: str


@functools.cache
def newer() -> Assembler | None:
    """The one for the newest GPUs, where it is newer than the other and this machine's driver runs what it makes: of no
    later major version than torch's CUDA. None where the user chose one, and where Triton has nothing of the kind."""
    if CHOSEN in os.environ:
        return None
    try:
        from triton import knobs
        from triton.compiler import make_backend
        from triton.runtime import driver

        usual, newest = knobs.nvidia.ptxas, knobs.nvidia.ptxas_blackwell
        version, torchs = _numbers(newest.version), _numbers(torch.version.cuda or "0")
        if "ptxas" in vars(knobs.nvidia) or version <= _numbers(usual.version) or version[0] > torchs[0]:
            return None
        # Triton asks for the version once a process, and files all it compiles under it: before it is set otherwise.
        make_backend(driver.active.get_current_target()).hash()
        with _set(newest.path):
            return Assembler(newest.path, newest.version) if knobs.nvidia.ptxas.path == newest.path else None
    except Exception:  # whatever other versions of Triton have in these places
        return None


@contextmanager
def newer_for_launches() -> Iterator[str]:
    """In here kernels are compiled by :func:`newer`. The value, its version or "" where there is none, is to be a
    constant of theirs: under it Triton finds them again, and not what another assembler made of the same source."""
    taken = newer()
    if taken is None:
        yield ""
        return
    with _set(taken.path):
        yield taken.version


@contextmanager
def _set(path: str) -> Iterator[None]:
    """Where Triton keeps what was set, and not by its own setter: that would set the environment variable, too, for
    every process that another thread starts meanwhile. One thread at a time: none puts back what another has set."""
    from triton import knobs

    settings = vars(knobs.nvidia)
    with _alone:
        before = settings.get("ptxas")
        settings["ptxas"] = path
        try:
            yield
        finally:
            settings.pop("ptxas", None)
            if before is not None:
                settings["ptxas"] = before


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
