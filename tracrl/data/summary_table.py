"""A data set's summary as tables in a terminal."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tracrl.data.summary import CELLS, Summary


def print_summary(console: Console, summary: Summary) -> None:
    """Print a summary as two tables: the data as a whole, and the data at each limit."""
    # Names come from files: as Text, in which nothing is taken for markup.
    console.print(Text.assemble((summary.name, "bold"), f", task {summary.task}" if summary.task else ""))
    if summary.made_by:
        console.print(Text(f"made by: {summary.made_by}", "dim"))
    counted = f"{summary.episodes:,} episodes, {summary.transitions:,} transitions"
    if summary.dsrl:
        counted += f" (DSRL's data: {summary.dsrl['episodes']:,} episodes)"
    console.print(
        f"{counted}; {summary.terminated} episodes terminated, the others were truncated; "
        f"observations of size {summary.observation_size}, actions of size {summary.action_size}.\n"
        f"Covers {summary.coverage:.0%} of the cost-return plane: the share of occupied cells of a "
        f"{CELLS} × {CELLS} grid inside the bounds of these data.",
        highlight=False,
    )
    console.print(_table_of_the_whole(summary))
    console.print(_table_of_limits(summary))
    console.print(_explanation(summary), style="dim", highlight=False)
    for at in summary.limits:
        if at.note:
            console.print(f"Limit {at.limit:g}: {at.note}", style="yellow", highlight=False)


def _table_of_the_whole(summary: Summary) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("an episode's")
    for column in ("lowest", "median", "highest"):
        table.add_column(column, justify="right")
    known = summary.dsrl
    if known:
        table.add_column("DSRL's lowest", justify="right", style="dim")
        table.add_column("DSRL's highest", justify="right", style="dim")
    ends = {
        "steps": ("", "longest"),
        "return": ("lowest_return", "highest_return"),
        "cost": ("", "highest_cost"),
    }
    for label, spread in (("steps", summary.lengths), ("return", summary.returns), ("cost", summary.costs)):
        numbers = [_short(value) for value in (spread.low, spread.median, spread.high)]
        constants = [_short(known[end]) if end else "" for end in ends[label]] if known else []
        table.add_row(label, *numbers, *constants)
    return table


def _table_of_limits(summary: Summary) -> Table:
    scored = summary.dsrl is not None
    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for column in ("limit", "safe", "unsafe"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("best safe return", justify="right")
    if scored:
        table.add_column("score", justify="right")
    for column in ("desirable", "undesirable", "left out"):
        table.add_column(column, justify="right", no_wrap=True)
    for at in summary.limits:
        score = "" if at.best_safe_score is None else f"{at.best_safe_score:.2f}"
        table.add_row(
            f"{at.limit:g}",
            f"{at.safe} ({at.share_safe:.0%})",
            str(at.unsafe),
            "none" if at.best_safe_return is None else _short(at.best_safe_return),
            *([score] if scored else []),
            str(at.desirable),
            str(at.undesirable),
            str(at.left_out),
        )
    return table


def _explanation(summary: Summary) -> str:
    """What the columns of the second table mean."""
    said = f"Desirable: the top {summary.x:g} % of the safe episodes by return. Undesirable: the unsafe"
    said += f" and the bottom {summary.y:g} % of the safe." if summary.y else "."
    return said + (" Score: the return normalised with DSRL's range." if summary.dsrl else "")


def _short(value: float) -> str:
    """One decimal, none where it is zero; small numbers keep three digits."""
    return f"{value:.3g}" if abs(value) < 1 else f"{value:.1f}".removesuffix(".0")
