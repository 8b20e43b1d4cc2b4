"""Whether a GPU uses kernels of our own, written in Triton."""

from __future__ import annotations

import os
import warnings


def wanted() -> bool:
    """Unless the environment variable TRACRL_FUSED is 0.

    They draw random bytes (:mod:`tracrl.nets.kernels`), are CDT's attention (:mod:`tracrl.nets.attention`) and, with
    bfloat16 products, TraC's network (:mod:`tracrl.nets.fused`). The first and the last are tried against the plain
    form before they are used.
    """
    return os.environ.get("TRACRL_FUSED") != "0"


def left_out(what: str, why: object) -> None:
    """Say that kernels are not used, and why; where Triton is not there, only if they were asked for
    (TRACRL_FUSED is 1)."""
    if isinstance(why, ImportError) and os.environ.get("TRACRL_FUSED") != "1":
        return
    reason = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else why
    warnings.warn(f"Left out: {what} not used: {reason}", stacklevel=3)
