"""``tracrl report``: its options."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from tracrl.cli.console import console


@dataclass
class ReportOptions:
    """Tables, figures and a page, from run directories or from the committed scores in results/."""

    paths: tyro.conf.Positional[tuple[Path, ...]]
    """run directories, or directories of them such as runs; or a folder with runs.csv, scores.csv and data.csv"""
    out: Path | None = None
    """where the report goes; without it, report/ below the first path"""
    data: tuple[str, ...] = ()
    """data that runs were trained on (a task's name or a file): their episodes are drawn behind the policies"""
    quiet: bool = False
    """print no tables: they are in the files"""


def report(options: ReportOptions) -> int:
    from tracrl.data.locate import load_dataset
    from tracrl.report.build import make_report

    data = [load_dataset(source) for source in options.data]
    make_report(options.paths, options.out, console, data=data, quiet=options.quiet)
    return 0
