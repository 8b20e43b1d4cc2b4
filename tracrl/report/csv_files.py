"""Numbers for other programs: every cell of the main tables, and every run."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tracrl.report.grid import csv_text
from tracrl.report.groups import Overview
from tracrl.report.published import published_results
from tracrl.report.results import Result
from tracrl.study.studies import shown


def results_csv(found: Overview) -> str:
    """Every cell of the main tables as numbers, the published ones beside them."""
    out = io.StringIO()
    numbers = ("reward_mean", "reward_std", "cost_mean", "cost_std")
    writer = csv.writer(out, lineterminator="\n")
    heads = ["suite", "task", "data", "data_is_dsrl", "method", "settings", "policy"]
    kept = ["solved", "safe", "safe_limits", "limits", "runs", "episodes", "precision"]
    writer.writerow([*heads, *numbers, *kept, *[f"published_{name}" for name in numbers]])
    for row in found.rows:
        for column in found.columns:
            paper = published_results().get((row.task, column.title))
            theirs = ["", "", "", ""] if paper is None else [paper.reward, paper.reward_std, paper.cost, paper.cost_std]
            for policy in ("final", "best"):
                if (cell := found.cell(row, column, policy)) is not None:
                    ours = [f"{v:.6g}" for v in (cell.reward, cell.reward_std, cell.cost, cell.cost_std)]
                    names = [csv_text(name) for name in (row.source, column.title, column.about)]
                    what = [row.suite, row.task, names[0], row.from_dsrl, *names[1:], policy]
                    safety = [cell.solved, cell.safe, cell.safe_parts, cell.parts, cell.runs, cell.episodes]
                    precisions = sorted({r.stack.precision for r in found.results[row, column]})
                    writer.writerow([*what, *ours, *safety, " and ".join(precisions), *theirs])
    return out.getvalue()


def runs_csv(results: Sequence[Result]) -> str:
    """A line for each run."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = "directory identity task method preset changes device precision limit seed policy reward cost safe episodes"
    writer.writerow(heads.split())
    for r in results:
        changes = "; ".join(f"{name}={shown(value)}" for name, value in r.stack.changes.items())
        names = [csv_text(r.stack.path), r.stack.identity, r.stack.task, csv_text(r.stack.title), r.stack.preset]
        what = [*names, csv_text(changes), r.stack.run.device, r.stack.precision]
        for policy in ("final", "best"):
            if (scored := r.scored(policy)) is not None:
                reward, cost = float(scored[0].mean()), float(scored[1].mean())
                writer.writerow(
                    [*what, f"{r.limit:g}", r.seed, policy, f"{reward:.6g}", f"{cost:.6g}", cost <= 1, len(scored[0])]
                )
    return out.getvalue()
