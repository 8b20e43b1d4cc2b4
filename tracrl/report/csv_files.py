"""Numbers for other programs: every cell of the main tables, and every run."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tracrl.evaluation.risk import cvar, share_above
from tracrl.report.grid import csv_text
from tracrl.report.groups import Column, Overview, Row
from tracrl.report.limits import at_limits, raw_cost
from tracrl.report.published import published_results
from tracrl.report.results import Result
from tracrl.study.studies import shown


def results_csv(found: Overview) -> str:
    """Every cell of the main tables as numbers, the published ones beside them."""
    out = io.StringIO()
    numbers = ("reward_mean", "reward_std", "cost_mean", "cost_std")
    writer = csv.writer(out, lineterminator="\n")
    kept = ["share_above", "cost_cvar", "solved", "safe", "safe_limits", "limits", "runs", "episodes", "precision"]
    writer.writerow([*_CELL, *numbers, *kept, *[f"published_{name}" for name in numbers]])
    for row in found.rows:
        for column in found.columns:
            paper = published_results().get((row.task, column.title))
            theirs = ["", "", "", ""] if paper is None else [paper.reward, paper.reward_std, paper.cost, paper.cost_std]
            for policy in ("final", "best"):
                if (cell := found.cell(row, column, policy)) is not None:
                    means = (cell.reward, cell.reward_std, cell.cost, cell.cost_std)
                    ours = [_number(value) for value in (*means, cell.share_above, cell.cost_cvar)]
                    safety = [cell.solved, cell.safe, cell.safe_parts, cell.parts, cell.runs, cell.episodes]
                    precisions = sorted({r.stack.precision for r in found.results[row, column]})
                    what = _cell(row, column, policy)
                    writer.writerow([*what, *ours, *safety, " and ".join(precisions), *theirs])
    return out.getvalue()


def limits_csv(found: Overview) -> str:
    """Every cell of the main tables at each limit; costs as they are, as the limit is."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    numbers = ["reward_mean", "reward_std", "cost_mean", "normalised_cost_mean", "share_above", "cost_cvar"]
    writer.writerow([*_CELL, "limit", *numbers, "safe", "runs", "episodes"])
    for policy in ("final", "best"):
        for row, column, limit, cell in at_limits(found, policy):
            worst = None if cell.cost_cvar is None else raw_cost(cell.cost_cvar, limit)
            means = (cell.reward, cell.reward_std, raw_cost(cell.cost, limit), cell.cost, cell.share_above, worst)
            counts = [cell.safe, cell.runs, cell.episodes]
            writer.writerow([*_cell(row, column, policy), f"{limit:g}", *map(_number, means), *counts])
    return out.getvalue()


def runs_csv(results: Sequence[Result]) -> str:
    """A line for each run."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = "directory identity task method preset changes device precision limit seed policy reward cost safe episodes"
    writer.writerow([*heads.split(), "share_above", "cost_cvar", "fingerprint"])
    for r in results:
        changes = "; ".join(f"{name}={shown(value)}" for name, value in r.stack.changes.items())
        names = [csv_text(r.stack.path), r.stack.identity, r.stack.task, csv_text(r.stack.title), r.stack.preset]
        what = [*names, csv_text(changes), r.stack.run.device, r.stack.precision]
        for policy in ("final", "best"):
            if (scored := r.scored(policy)) is not None:
                reward, cost = float(scored[0].mean()), float(scored[1].mean())
                risk = [_number(share_above(scored[1], 1.0)), _number(cvar(scored[1]))]
                scores = [f"{reward:.6g}", f"{cost:.6g}", cost <= 1, len(scored[0]), *risk, r.stack.fingerprint]
                writer.writerow([*what, f"{r.limit:g}", r.seed, policy, *scores])
    return out.getvalue()


_CELL = ("suite", "task", "data", "data_is_dsrl", "fingerprint", "method", "settings", "policy")


def _cell(row: Row, column: Column, policy: str) -> list[object]:
    names = [csv_text(name) for name in (row.source, column.title, column.about)]
    return [row.suite, row.task, names[0], row.from_dsrl, row.fingerprint, *names[1:], policy]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
