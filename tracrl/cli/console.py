"""The one console, and how text is printed."""

from __future__ import annotations

import sys
from typing import Any

from rich.console import Console

console = Console(highlight=False)
if not console.is_terminal:
    console.width = 120  # a file or a pipe has no width: tables need not fold at 80


def fail(message: str, status: int = 1) -> int:
    print(f"tracrl: {message}", file=sys.stderr)
    return status


def note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, UserWarning):
        print(f"note: {message}", file=sys.stderr)
