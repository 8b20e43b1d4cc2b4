"""A table in text, Markdown, LaTeX, CSV and on the terminal.

Unsafe numbers are grey, safe ones bold and the best safe ones of a row blue, where a format has that; the caption says
how each format shows it. Names come from files of other people: each format quotes them in its own way.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

Style = Literal["plain", "unsafe", "partly", "safe", "best"]
NOTHING = "–"
PARTLY = "mean cost at most 1 but not at every limit (2/3: at two of three; of averages: tasks)"
_MARKS = {"plain": "", "unsafe": "", "partly": "~", "safe": "*", "best": "**"}
_RICH = {"plain": "", "unsafe": "bright_black", "partly": "italic", "safe": "bold", "best": "bold blue"}
_LEGENDS = {
    "text": "* safe at every limit, ** the best of these for its task, ~ {partly}, no mark: unsafe.",
    "markdown": "**Bold**: safe at every limit; ★: the best of these for its task; *italic*: {partly}; plain: unsafe.",
    "latex": (
        r"\textcolor{{gray}}{{Grey}}: unsafe; \textbf{{bold}}: safe at every limit; "
        r"\textcolor{{blue}}{{\textbf{{blue}}}}: the best of these for its task; \textit{{italic}}: {partly}."
    ),
    "colours": "Bold: safe at every limit; blue: the best of these for its task; italic: {partly}; grey: unsafe.",
}


@dataclass(frozen=True)
class Entry:
    """One piece of a table."""

    text: str
    style: Style = "plain"
    mark: str = ""
    """behind the number: at how many limits it is safe, and what the notes say more about"""

    @property
    def whole(self) -> str:
        return f"{self.text} ({self.mark})" if self.mark else self.text

    @property
    def short(self) -> str:
        """Without the deviation."""
        number = self.text.partition(" ± ")[0]
        return f"{number} ({self.mark})" if self.mark else number


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
    partly: str = PARTLY
    """what is said of numbers that are neither"""
    notes: tuple[str, ...] = field(default=())

    def legend(self, form: str) -> list[str]:
        return [_LEGENDS[form].format(partly=self.partly)] if self.marked else []

    def text(self) -> str:
        """For files and mails."""
        heads = [self.corner, *self.all_heads()]
        body = [[line.label, *[entry.whole + _MARKS[entry.style] for entry in line.entries]] for line in self.lines]
        rows = [[one_line(cell) for cell in row] for row in (heads, *body)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]

        def drawn(row: Sequence[str]) -> str:
            first, *rest = [
                cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ]
            return "  ".join([first, *rest]).rstrip()

        rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
        out = [self.title, "", drawn(rows[0]), rule]
        for line, row in zip(self.lines, rows[1:], strict=True):
            out += [rule, drawn(row), rule] if line.average else [drawn(row)]
        return "\n".join([*out, "", *self.legend("text"), *map(one_line, (*self.caption, *self.notes))]) + "\n"

    def markdown(self, *, title: bool = True) -> str:
        heads = [markdown_text(head) for head in (self.corner, *self.all_heads())]
        out = [f"### {markdown_text(self.title)}", ""] if title else []
        out += [_pipes(heads), _pipes(["---", *["---:"] * (len(heads) - 1)])]
        for line in self.lines:
            label = markdown_text(line.label)
            out.append(_pipes([f"**{label}**" if line.average else label, *map(_markdown, line.entries)]))
        caption = [*self.legend("markdown"), *map(markdown_text, (*self.caption, *self.notes))]
        return "\n".join([*out, "", " ".join(caption)]) + "\n"

    def latex(self) -> str:
        """A table* for a paper; needs booktabs, graphicx and xcolor."""
        count = len(self.heads) * self.span
        out = [r"% needs \usepackage{booktabs,graphicx,xcolor}", r"\begin{table*}", r"\centering"]
        out += [r"\resizebox{\textwidth}{!}{%", rf"\begin{{tabular}}{{l{'c' * count}}}", r"\toprule"]
        if self.span > 1:
            heads = [rf"\multicolumn{{{self.span}}}{{c}}{{{latex_text(head)}}}" for head in self.heads]
            out.append(" & ".join(["", *heads]) + r" \\")
            rules = [rf"\cmidrule(lr){{{2 + i * self.span}-{1 + (i + 1) * self.span}}}" for i in range(len(self.heads))]
            out.append("".join(rules))
            under = [latex_text(u) for _ in self.heads for u in self.under]
            out.append(" & ".join([latex_text(self.corner), *under]) + r" \\")
        else:
            out.append(" & ".join([latex_text(self.corner), *map(latex_text, self.heads)]) + r" \\")
        out.append(r"\midrule")
        for line in self.lines:
            row = " & ".join([latex_text(line.label), *[_latex(entry) for entry in line.entries]]) + r" \\"
            out += [r"\midrule", row, r"\midrule"] if line.average else [row]
        if out[-1] == r"\midrule":
            out.pop()
        told = [latex_text(sentence) for sentence in (*self.caption, *self.notes)]
        caption = " ".join([latex_text(self.title) + ".", *self.legend("latex"), *told])
        out += [r"\bottomrule", r"\end{tabular}}", rf"\caption{{{caption}}}", r"\end{table*}"]
        return "\n".join(out) + "\n"

    def csv(self) -> str:
        """The same cells as text; results.csv and runs.csv have the numbers."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(map(csv_text, (self.corner, *self.all_heads())))
        for line in self.lines:
            writer.writerow([csv_text(line.label), *[entry.whole for entry in line.entries]])
        return out.getvalue()

    def show(self, console: Console) -> None:
        """On the terminal: means alone. Where it is too narrow, lines are folded and no number is cut."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False)
        table.add_column(Text(self.corner), no_wrap=True)
        for head in self.heads:
            table.add_column(Text(one_line(head)), justify="right", no_wrap=True)
        for line in self.lines:
            parts = [line.entries[i : i + self.span] for i in range(0, len(line.entries), self.span)]
            cells = [Text("/".join(entry.short for entry in part), _RICH[part[0].style]) for part in parts]
            if line.average:
                table.add_section()
            table.add_row(Text(one_line(line.label)), *cells, end_section=line.average)
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
        told = [*self.legend("colours"), *map(one_line, (*self.caption, *self.notes))]
        console.print(Text(" ".join(told), "dim"), soft_wrap=False)

    def all_heads(self) -> list[str]:
        return [f"{head} {under}" for head in self.heads for under in self.under] if self.under else list(self.heads)


def one_line(text: str) -> str:
    """Without breaks and control characters, so that no name breaks a table; bytes that are no text as numbers."""
    told = re.sub("[\udc80-\udcff]", lambda byte: f"\\x{ord(byte[0]) - 0xDC00:02x}", text)
    return " ".join("".join(c if c.isprintable() else " " for c in told).split())


def csv_text(text: object) -> str:
    """A name for a spreadsheet: what it would take for a formula begins with an apostrophe, which makes it text."""
    told = one_line(str(text))
    return f"'{told}" if told[:1] in ("=", "+", "-", "@") else told


def markdown_text(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", one_line(text))


def latex_text(text: str) -> str:
    told = "".join(_TEX.get(letter, letter) for letter in one_line(text))
    return f"{{}}{told}" if told[:1] in ("[", "*") else told  # behind \\ these would be its arguments


def _pipes(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _markdown(entry: Entry) -> str:
    if entry.style in ("safe", "best"):
        return f"**{entry.whole}**" + (" ★" if entry.style == "best" else "")
    return f"*{entry.whole}*" if entry.style == "partly" else entry.whole


def _latex(entry: Entry) -> str:
    text = latex_text(entry.whole)
    return {
        "plain": text,
        "unsafe": rf"\textcolor{{gray}}{{{text}}}",
        "partly": rf"\textit{{{text}}}",
        "safe": rf"\textbf{{{text}}}",
        "best": rf"\textcolor{{blue}}{{\textbf{{{text}}}}}",
    }[entry.style]


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", "±": r"$\pm$", "×": r"$\times$", "↑": r"$\uparrow$", "↓": r"$\downarrow$", "–": "--",
    "−": "$-$", "≤": r"$\leq$", "†": r"\dag{}", "‡": r"\ddag{}", "δ": r"$\delta$", "η": r"$\eta$", "α": r"$\alpha$",
}  # fmt: skip
