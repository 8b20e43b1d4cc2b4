"""Numbers too small for a float's whole precision (denormals) are taken for 0 while a method is trained on a CPU.

What nothing reaches any more, a unit that is always off, say, leaves Adam with moments that shrink by a tenth in each
update. After some 800 updates they are denormals for long, with which processors take many times as long: an update of
a small network then took twice its time. Weights differ in their last digits at the most.

It is each thread's own affair, and threads inherit it. So nothing is changed where torch has threads of its own: of
these some would keep it, and others never learn of it.
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
    if torch.get_num_threads() == 1:
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
