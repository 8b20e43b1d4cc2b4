"""Tables in text, Markdown, LaTeX and CSV.

Unsafe numbers are grey, safe ones bold and the best safe ones of a row blue, where a format has that; the caption says
how each format shows it.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tracrl.report.groups import Ablation, Cell, Column, Overview, Row, protocol_of, unit_of
from tracrl.report.published import CITATION, Published, published_ablations, published_results
from tracrl.report.results import Result
from tracrl.report.statistics import Interval, bootstrap, interquartile_mean, mean
from tracrl.study.studies import shown

Style = Literal["plain", "unsafe", "safe", "best"]
NOTHING = "–"
FINAL = "final policy"
BEST = "best policy on the way"
_MARKS = {"plain": "", "unsafe": "", "safe": "*", "best": "**"}
_LATEX_LEGEND = (
    r"\textcolor{gray}{Grey}: unsafe; \textbf{bold}: safe; \textcolor{blue}{\textbf{blue}}: the best safe of its task."
)
_RICH = {"plain": "", "unsafe": "bright_black", "safe": "bold", "best": "bold blue"}


@dataclass(frozen=True)
class Entry:
    """One piece of a table."""

    text: str
    style: Style = "plain"


@dataclass(frozen=True)
class Line:
    """A row of a table."""

    label: str
    entries: tuple[Entry, ...]
    average: bool = False
    """set apart from the rows above it"""


@dataclass(frozen=True)
class Grid:
    """A table before it has a format."""

    title: str
    caption: tuple[str, ...]
    """sentences"""
    corner: str
    heads: tuple[str, ...]
    lines: tuple[Line, ...]
    span: int = 1
    """columns below each head; more than one have ``under`` as their own heads"""
    under: tuple[str, ...] = ()
    marked: bool = True
    """safe and unsafe are told apart"""
    notes: tuple[str, ...] = field(default=())

    def text(self) -> str:
        """For files and mails."""
        columns = [[self.corner], *[[head] for head in self.all_heads()]]
        body = [[line.label, *[entry.text + _MARKS[entry.style] for entry in line.entries]] for line in self.lines]
        rows = [[column[0] for column in columns], *body]
        widths = [max(len(row[i]) for row in rows) for i in range(len(columns))]

        def drawn(row: Sequence[str]) -> str:
            first, *rest = [
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ]
            return "  ".join([first, *rest]).rstrip()

        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        out = [self.title, "", drawn(rows[0]), rule]
        for line, row in zip(self.lines, body, strict=True):
            out += [rule, drawn(row), rule] if line.average else [drawn(row)]
        legend = ["* safe, ** the best safe of its task, no mark: unsafe."] if self.marked else []
        return "\n".join([*out, "", *legend, *self.caption, *self.notes]) + "\n"

    def markdown(self) -> str:
        heads = [self.corner, *self.all_heads()]
        out = [f"### {self.title}", "", _pipes(heads), _pipes(["---", *["---:"] * (len(heads) - 1)])]
        for line in self.lines:
            label = f"**{line.label}**" if line.average else line.label
            out.append(_pipes([label, *[_markdown(entry) for entry in line.entries]]))
        legend = ["**Bold**: safe; ★: the best safe of its task; plain: unsafe."] if self.marked else []
        return "\n".join([*out, "", " ".join([*legend, *self.caption, *self.notes])]) + "\n"

    def latex(self) -> str:
        """A table* for a paper; needs booktabs, graphicx and xcolor."""
        count = len(self.heads) * self.span
        out = [r"% needs \usepackage{booktabs,graphicx,xcolor}", r"\begin{table*}", r"\centering"]
        out += [r"\resizebox{\textwidth}{!}{%", rf"\begin{{tabular}}{{l{'c' * count}}}", r"\toprule"]
        if self.span > 1:
            heads = [rf"\multicolumn{{{self.span}}}{{c}}{{{_tex(head)}}}" for head in self.heads]
            out.append(" & ".join(["", *heads]) + r" \\")
            rules = [rf"\cmidrule(lr){{{2 + i * self.span}-{1 + (i + 1) * self.span}}}" for i in range(len(self.heads))]
            out.append("".join(rules))
            out.append(" & ".join([_tex(self.corner), *[_tex(u) for _ in self.heads for u in self.under]]) + r" \\")
        else:
            out.append(" & ".join([_tex(self.corner), *map(_tex, self.heads)]) + r" \\")
        out.append(r"\midrule")
        for line in self.lines:
            row = " & ".join([_tex(line.label), *[_latex(entry) for entry in line.entries]]) + r" \\"
            out += [r"\midrule", row, r"\midrule"] if line.average else [row]
        if out[-1] == r"\midrule":
            out.pop()
        legend = [_LATEX_LEGEND] if self.marked else []
        caption = " ".join([_tex(self.title) + ".", *legend, *map(_tex, (*self.caption, *self.notes))])
        out += [r"\bottomrule", r"\end{tabular}}", rf"\caption{{{caption}}}", r"\end{table*}"]
        return "\n".join(out) + "\n"

    def csv(self) -> str:
        """The same cells as text; results.csv and runs.csv have the numbers."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([self.corner, *self.all_heads()])
        for line in self.lines:
            writer.writerow([line.label, *[entry.text for entry in line.entries]])
        return out.getvalue()

    def show(self, console: Console) -> None:
        """On the terminal: means alone. Where it is too narrow, lines are folded and no number is cut."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column(self.corner, no_wrap=True)
        for head in self.heads:
            table.add_column(head, justify="right", no_wrap=True)
        for line in self.lines:
            parts = [line.entries[i : i + self.span] for i in range(0, len(line.entries), self.span)]
            cells = [Text("/".join(_short(entry.text) for entry in part), _RICH[part[0].style]) for part in parts]
            if line.average:
                table.add_section()
            table.add_row(Text(line.label), *cells, end_section=line.average)
        console.print(Text(self.title, "italic"))
        needed = Measurement.get(console, console.options.update(max_width=1000), table).maximum
        system: Any = console.color_system  # a terminal folds lines that are too long; rich would cut them
        Console(
            file=console.file,
            width=needed,
            color_system=system,
            force_terminal=console.is_terminal,
            highlight=False,
        ).print(table)
        legend = "Bold: safe; blue: the best safe of its task; grey: unsafe. " if self.marked else ""
        console.print(Text(legend + " ".join((*self.caption, *self.notes)), "dim"), soft_wrap=False)

    def all_heads(self) -> list[str]:
        return [f"{head} {under}" for head in self.heads for under in self.under] if self.under else list(self.heads)


def main_grid(found: Overview, policy: Literal["final", "best"]) -> Grid:
    """Our numbers: tasks, and the average of each suite."""
    lines: list[Line] = []
    for suite in found.suites():
        rows = [row for row in found.rows if row.suite == suite]
        cells = {(row, column): found.cell(row, column, policy) for row in rows for column in found.columns}
        for row in rows:
            lines.append(_line(row.label, [cells[row, column] for column in found.columns]))
        means = [_average([cells[row, column] for row in rows]) for column in found.columns]
        lines.append(_line(_average_label(suite, rows), means, average=True))
    what = FINAL if policy == "final" else BEST
    caption = [_mean_over(found)]
    if policy == "best":
        caption.append(
            "Best policy: of each run the best of its evaluations on the way, chosen in the simulator by the same "
            "episodes that score it here, so these numbers are too good; the other table is the one to compare with."
        )
    caption += [*_settings(found.columns), *_sources(found.rows)]
    return Grid(
        title=f"Normalised reward and cost, {what}",
        caption=tuple(caption),
        corner="task",
        heads=tuple(column.label for column in found.columns),
        lines=tuple(lines),
        span=2,
        under=("reward ↑", "cost ↓"),
        notes=found.notes,
    )


def published_grid(found: Overview) -> Grid:
    """The paper's numbers for the same tasks and methods."""
    titles = list(dict.fromkeys(column.title for column in found.columns))
    known = published_results()
    lines: list[Line] = []
    for suite in found.suites():
        rows = list({row.task: row for row in found.rows if row.suite == suite}.values())
        cells = {(row.task, t): _as_cell(known.get((row.task, t))) for row in rows for t in titles}
        lines += [_line(row.task, [cells[row.task, t] for t in titles]) for row in rows]
        means = [_average([cells[row.task, t] for row in rows]) for t in titles]
        lines.append(_line(_average_label(suite, rows), means, average=True))
    return Grid(
        title=f"As published, for comparison ({CITATION})",
        caption=("Printed in the paper, not computed by us: DSRL's data, 3 limits × 3 seeds × 20 episodes.",),
        corner="task",
        heads=tuple(titles),
        lines=tuple(lines),
        span=2,
        under=("reward ↑", "cost ↓"),
    )


def statistics_grid(found: Overview, policy: Literal["final", "best"] = "final") -> Grid:
    """Interquartile means and means with bootstrap intervals, over runs."""
    lines = []
    for suite in found.suites():
        for column in found.columns:
            strata = strata_of(found, suite, column, policy)
            if strata is None:
                continue
            rewards, costs = strata
            runs = sum(map(len, rewards))
            safe = float(np.mean(np.concatenate(costs) <= 1))
            entries = [
                _interval(bootstrap(rewards, interquartile_mean)),
                _interval(bootstrap(costs, interquartile_mean)),
                _interval(bootstrap(rewards, mean)),
                _interval(bootstrap(costs, mean)),
                f"{100 * safe:.0f} %",
                str(runs),
            ]
            lines.append(Line(f"{suite}: {column.label}", tuple(map(Entry, entries))))
    return Grid(
        title=f"Aggregates over runs, {FINAL if policy == 'final' else BEST}",
        caption=(
            "A run's score is the mean over its episodes. IQM: interquartile mean over all runs of the suite. In "
            "brackets the 95 % interval of 2000 stratified bootstrap samples (seeds are drawn again within each "
            f"{unit_of(found.rows)} and limit), as in rliable; none where there is one seed.",
        ),
        corner="suite and method",
        heads=("IQM reward ↑", "IQM cost ↓", "mean reward ↑", "mean cost ↓", "safe runs", "runs"),
        lines=tuple(lines),
        marked=False,
    )


def ablation_grid(ablation: Ablation) -> Grid:
    """One setting varied: ours, and where the paper prints them its numbers."""
    lines = []
    for row in ablation.rows():
        cells = {v: Cell.of(ablation.results[row, v], "final") for v in ablation.values if (row, v) in ablation.results}
        best = _best(list(cells.values()))
        for value, cell in cells.items():
            paper = published_value(ablation, row, value)
            told = NOTHING if paper is None else f"{_number(paper.reward)} / {_number(paper.cost)}"
            pair = _entries(cell, best) if cell is not None else (Entry(NOTHING), Entry(NOTHING))
            lines.append(Line(f"{row.label}, {ablation.symbol} {shown(value)}", (*pair, Entry(told))))
    first = next(iter(ablation.results.values()))
    columns = {r.stack.preset for runs in ablation.results.values() for r in runs}
    changes = {
        f"{name} {shown(v)}"
        for runs in ablation.results.values()
        for r in runs
        for name, v in r.stack.changes.items()
        if name != ablation.setting
    }
    return Grid(
        title=f"Ablation: {ablation.symbol}, {FINAL}",
        caption=(
            f"Mean ± standard deviation over {protocol_of(first)}, normalised with DSRL's constants.",
            f"{first[0].stack.title}, {' and '.join(sorted(columns))} preset"
            + (f" with {', '.join(sorted(changes))}." if changes else "."),
            f"Published: {CITATION}, on DSRL's data; – where the paper prints no number.",
            *_sources(ablation.rows()),
        ),
        corner="task and value",
        heads=("reward ↑", "cost ↓", "published reward / cost"),
        lines=tuple(lines),
        notes=ablation.notes,
    )


def published_value(ablation: Ablation, row: Row, value: object) -> Published | None:
    """The paper's number for a value of a varied setting."""
    told = shown(value)
    if ablation.setting == "clone_updates" and value != 0:
        told = "30000"  # cloned, whatever the preset's number of updates
    return published_ablations().get((ablation.setting, row.task, told))


def results_csv(found: Overview) -> str:
    """Every cell of the main tables as numbers, the published ones beside them."""
    out = io.StringIO()
    numbers = ("reward_mean", "reward_std", "cost_mean", "cost_std")
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        ["suite", "task", "data", "data_is_dsrl", "method", "settings", "policy", *numbers, "safe", "runs", "episodes"]
        + [f"published_{name}" for name in numbers]
    )
    for row in found.rows:
        for column in found.columns:
            paper = published_results().get((row.task, column.title))
            theirs = ["", "", "", ""] if paper is None else [paper.reward, paper.reward_std, paper.cost, paper.cost_std]
            for policy in ("final", "best"):
                if (cell := found.cell(row, column, policy)) is not None:
                    ours = [f"{v:.6g}" for v in (cell.reward, cell.reward_std, cell.cost, cell.cost_std)]
                    facts = [row.suite, row.task, row.source, row.from_dsrl, column.title, column.about, policy]
                    writer.writerow([*facts, *ours, cell.safe, cell.runs, cell.episodes, *theirs])
    return out.getvalue()


def runs_csv(results: Sequence[Result]) -> str:
    """A line for each run."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = "directory identity task method preset changes limit seed policy reward cost safe episodes"
    writer.writerow(heads.split())
    for r in results:
        changes = "; ".join(f"{name}={shown(value)}" for name, value in r.stack.changes.items())
        facts = [r.stack.path, r.stack.identity, r.stack.task, r.stack.title, r.stack.preset, changes]
        for policy in ("final", "best"):
            if (scored := r.scored(policy)) is not None:
                reward, cost = float(scored[0].mean()), float(scored[1].mean())
                writer.writerow(
                    [*facts, f"{r.limit:g}", r.seed, policy, f"{reward:.6g}", f"{cost:.6g}", cost <= 1, len(scored[0])]
                )
    return out.getvalue()


def strata_of(
    found: Overview, suite: str, column: Column, policy: str
) -> tuple[list[np.ndarray], list[np.ndarray]] | None:
    """(rewards, costs) of a method's runs in a suite: an array for each task and limit, a number for each seed."""
    groups: dict[tuple[Row, float], list[tuple[float, float]]] = {}
    for row in found.rows:
        for result in found.results.get((row, column), ()) if row.suite == suite else ():
            if (scored := result.scored(policy)) is not None:
                pair = (float(scored[0].mean()), float(scored[1].mean()))
                groups.setdefault((row, result.limit), []).append(pair)
    if not groups:
        return None
    pairs = [np.array(group) for group in groups.values()]
    return [p[:, 0] for p in pairs], [p[:, 1] for p in pairs]


def solved(found: Overview, suite: str, column: Column, policy: str = "final") -> tuple[int, int]:
    """Rows of a suite (tasks, or data sets where a task has several) that a method solves safely, of how many."""
    cells = [found.cell(row, column, policy) for row in found.rows if row.suite == suite]
    there = [cell for cell in cells if cell is not None]
    return sum(cell.safe for cell in there), len(there)


def _line(label: str, cells: Sequence[Cell | None], average: bool = False) -> Line:
    best = _best(cells)
    entries: list[Entry] = []
    for cell in cells:
        entries += _entries(cell, best) if cell is not None else (Entry(NOTHING), Entry(NOTHING))
    return Line(label, tuple(entries), average)


def _best(cells: Sequence[Cell | None]) -> Cell | None:
    """The safe one of highest reward."""
    safe = [cell for cell in cells if cell is not None and cell.safe]
    return max(safe, key=lambda cell: cell.reward, default=None)


def _entries(cell: Cell, best: Cell | None) -> tuple[Entry, Entry]:
    style: Style = "unsafe" if not cell.safe else "best" if cell is best else "safe"
    return (
        Entry(_spread(cell.reward, cell.reward_std), style),
        Entry(_spread(cell.cost, cell.cost_std), style),
    )


def _average(cells: Sequence[Cell | None]) -> Cell | None:
    """Of the tasks' means, with the standard deviation over tasks, as the paper has it; only if none is missing."""
    there = [cell for cell in cells if cell is not None]
    if not there or len(there) < len(cells):
        return None
    rewards, costs = np.array([c.reward for c in there]), np.array([c.cost for c in there])
    return Cell(
        reward=float(rewards.mean()),
        reward_std=float(rewards.std()),
        cost=float(costs.mean()),
        cost_std=float(costs.std()),
        runs=sum(c.runs for c in there),
        episodes=sum(c.episodes for c in there),
    )


def _average_label(suite: str, rows: Sequence[Row]) -> str:
    from tracrl.tasks.table import all_tasks

    whole = sum(task.suite == suite for task in all_tasks().values())
    count = len({row.task for row in rows})
    told = [f"{count} of {whole}"] if count < whole else []
    told += [f"{len(rows)} data sets"] if len(rows) > count else []
    return f"{suite} average" + (f" ({', '.join(told)})" if told else "")


def _as_cell(paper: Published | None) -> Cell | None:
    if paper is None:
        return None
    return Cell(paper.reward, paper.reward_std or 0.0, paper.cost, paper.cost_std or 0.0, runs=9, episodes=180)


def _mean_over(found: Overview) -> str:
    protocols = list(dict.fromkeys(protocol_of(results) for results in found.results.values()))
    over = protocols[0] if len(protocols) == 1 else "limits × seeds × episodes (" + "; ".join(protocols) + ")"
    return (
        f"Mean ± standard deviation over {over}; averages: over the {unit_of(found.rows)}s' means. Normalised with "
        "DSRL's constants; safe: normalised cost at most 1."
    )


def _settings(columns: Sequence[Column]) -> list[str]:
    told: dict[str, list[str]] = {}
    for column in columns:
        told.setdefault(column.about, []).append(column.label)
    return [f"{', '.join(labels)}: {about}." for about, labels in told.items()]


def _sources(rows: Sequence[Row]) -> list[str]:
    dsrl = [row.label for row in rows if row.from_dsrl]
    ours = [f"Data of {row.label}: {row.source}." for row in rows if not row.from_dsrl]
    if not dsrl:
        return ours
    names = ", ".join(dsrl) if len(dsrl) <= 6 else f"{'the other' if ours else 'all'} {len(dsrl)} {unit_of(rows)}s"
    return [*ours, f"Data of {names}: DSRL's."]


def _interval(interval: Interval) -> str:
    if interval.low is None or interval.high is None:
        return f"{interval.value:.2f}"
    return f"{interval.value:.2f} [{interval.low:.2f}, {interval.high:.2f}]"


def _spread(value: float, deviation: float) -> str:
    return f"{_number(value)} ± {_number(deviation)}"


def _number(value: float) -> str:
    """Two digits, and no minus before a zero."""
    return f"{round(value, 2) + 0.0:.2f}"


def _short(text: str) -> str:
    return text.partition(" ± ")[0]


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"


def _markdown(entry: Entry) -> str:
    if entry.style in ("safe", "best"):
        return f"**{entry.text}**" + (" ★" if entry.style == "best" else "")
    return entry.text


def _latex(entry: Entry) -> str:
    text = _tex(entry.text)
    return {
        "plain": text,
        "unsafe": rf"\textcolor{{gray}}{{{text}}}",
        "safe": rf"\textbf{{{text}}}",
        "best": rf"\textcolor{{blue}}{{\textbf{{{text}}}}}",
    }[entry.style]


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "×": r"$\times$", "↑": r"$\uparrow$",
    "↓": r"$\downarrow$", "–": "--", "δ": r"$\delta$", "η": r"$\eta$", "α": r"$\alpha$",
}  # fmt: skip


def _tex(text: str) -> str:
    return "".join(_TEX.get(letter, letter) for letter in text)
