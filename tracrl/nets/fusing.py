"""Whether a GPU uses kernels of our own, written in Triton: the environment variable TRACRL_FUSED.

They draw random bytes (:mod:`tracrl.nets.kernels`), are CDT's attention (:mod:`tracrl.nets.attention`) and, with
bfloat16 products, TraC's network (:mod:`tracrl.nets.fused`). The first and the last are tried against the plain form
before they are used, the last in several forms: the fast ones wherever they are right, which depends on the assembler
(:mod:`tracrl.nets.assembler`; Triton's own variable TRITON_PTXAS_PATH names another), one that is no faster where it is
asked for.
"""

from __future__ import annotations

import os
import warnings


def wanted() -> bool:
    """Those that are faster wherever they were measured: unless TRACRL_FUSED is 0."""
    return os.environ.get("TRACRL_FUSED") != "0"


def asked_for() -> bool:
    """Those that are no faster, too: where TRACRL_FUSED is 1."""
    return os.environ.get("TRACRL_FUSED") == "1"


def left_out(what: str, why: object) -> None:
    """Say that kernels are not used, and why; where Triton is not there, only if they were asked for."""
    if isinstance(why, ImportError) and not asked_for():
        return
    reason = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else why
    warnings.warn(f"Left out: {what} not used: {reason}", stacklevel=3)
