"""Numbers too small for a float's whole precision (denormals) are taken for 0 while networks learn on a CPU.

What nothing reaches any more, a unit that is always off, say, leaves Adam with moments that shrink by a tenth in each
update. After some 800 updates they are denormals for long, with which processors take many times as long: an update of
a small network then took twice its time. Weights do not notice: such moments move them by less than they can show.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def are_taken_for_zero() -> bool:
    """by this thread"""
    return sys.float_info.min / 2 == 0


def take_for_zero() -> None:
    """by this thread, from now on"""
    torch.set_flush_denormal(True)


@contextmanager
def taken_for_zero() -> Iterator[None]:
    """by this thread, meanwhile"""
    before = are_taken_for_zero()
    take_for_zero()
    try:
        yield
    finally:
        torch.set_flush_denormal(before)
