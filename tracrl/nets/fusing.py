"""Whether a GPU is to use kernels that are not timed yet."""

from __future__ import annotations

import os
import warnings


def wanted() -> bool:
    """Whether the environment variable TRACRL_FUSED is 1; off by default.

    Then a GPU draws random bytes by a kernel of our own (:mod:`tracrl.nets.kernels`), and TraC's network with bfloat16
    products is one kernel each way (:mod:`tracrl.nets.fused`). Both are written and tested in Triton's interpreter, not
    timed on a GPU yet: there bytes were drawn in tests, and the network has never run. Each is tried against the plain
    form before use.
    """
    return os.environ.get("TRACRL_FUSED") == "1"


def left_out(what: str, why: object) -> None:
    """Say that what was asked for is not used."""
    reason = f"{type(why).__name__}: {why}" if isinstance(why, Exception) else why
    warnings.warn(f"TRACRL_FUSED is 1, but {what} not used: {reason}", stacklevel=3)
