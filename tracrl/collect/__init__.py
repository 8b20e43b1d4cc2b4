"""How a data set is made: a behaviour that covers the cost-return plane, its recording, and the thinning."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tracrl.collect.run import collect as collect
    from tracrl.envs.environment import EnvSpec as EnvSpec

# Imported on first use: a simulator process lives in this package too, and needs no torch.
_HOMES = {"EnvSpec": "tracrl.envs.environment", "collect": "tracrl.collect.run"}

__all__ = sorted(_HOMES)  # noqa: PLE0605


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tracrl.collect' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
