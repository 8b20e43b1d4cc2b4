"""Progress in a terminal: bars that show how far, how fast, how long still, and a note."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Self

from rich import progress
from rich.console import Console


class TerminalBars:
    """Bars with the fields ``rate`` and ``note``. Where output is a file they are not drawn; lines are said instead."""

    def __init__(self, console: Console):
        self.console = console
        self.drawn = console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)
        self.bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=20),
            progress.MofNCompleteColumn(),
            progress.TextColumn("{task.fields[rate]}"),
            progress.TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            progress.TextColumn("{task.fields[note]}"),
            console=console,
            disable=not self.drawn,
        )

    def __enter__(self) -> Self:
        self.bars.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.bars.refresh()  # a notebook would be left with what was last drawn
        self.bars.__exit__(None, None, None)


class RowsBar(TerminalBars):
    """How many rows of a table have been read."""

    def __enter__(self) -> Self:
        super().__enter__()
        self.task = self.bars.add_task("rows", total=None, rate="", note="")
        return self

    def show(self, done: int, total: int | None) -> None:
        self.bars.update(self.task, completed=done, total=total)
