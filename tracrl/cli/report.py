"""``tracrl report``: its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from tracrl.cli.console import console


@dataclass
class ReportOptions:
    """Tables, figures and a page from run directories."""

    paths: tyro.conf.Positional[tuple[Path, ...]]
    """run directories, or directories of them such as runs"""
    out: Path | None = None
    """where the report goes; without it, report/ below the first path"""


def report(options: ReportOptions) -> int:
    from tracrl.report.build import make_report

    make_report(options.paths, options.out, console)
    return 0
