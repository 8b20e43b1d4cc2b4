"""One HTML file with everything in it: opens without a network, on a computer or a phone."""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import tracrl
from tracrl.ope.estimates import ASSUMPTIONS
from tracrl.report.cells import Cell
from tracrl.report.collection import Collection
from tracrl.report.estimated import Estimated
from tracrl.report.figures import COLOURS, colour_number
from tracrl.report.grid import Grid
from tracrl.report.groups import Ablation, Overview, Row, overview
from tracrl.report.published import CITATION, Published, published_results
from tracrl.report.results import Result, at_every_limit
from tracrl.report.statistics import Interval, bootstrap, mean
from tracrl.report.tables import published_value, strata_of_runs
from tracrl.study.studies import STUDIES, shown


def make_page(
    collection: Collection,
    found: Overview,
    ablations: Sequence[Ablation],
    grids: Sequence[Grid],
    estimated: Mapping[str, Estimated] | None = None,
) -> str:
    """The whole page as text."""
    template = resources.files(__package__).joinpath("page.html").read_text(encoding="utf-8")
    # Inside a script element only "<" could end it early.
    data = json.dumps(page_data(collection, found, ablations, estimated or {}), ensure_ascii=False, allow_nan=False)
    tables = "\n".join(_table(grid, i == 0) for i, grid in enumerate(grids))
    return template.replace("%TABLES%", tables).replace("%DATA%", data.replace("<", "\\u003c"))


def page_data(
    collection: Collection, found: Overview, ablations: Sequence[Ablation], estimated: Mapping[str, Estimated]
) -> dict[str, Any]:
    """What the page's script works with."""
    results = collection.results
    everything = overview(results)  # with variants of settings and data, which the main table leaves out
    stacks = {(r.stack.path, r.stack.identity): r.stack for r in results}
    numbers = {key: i for i, key in enumerate(stacks)}
    in_main = {id(r): found.marks.get(key, "") for key, runs in found.results.items() for r in runs}
    colours = {column.about + column.method: colour_number(found, column) for column in found.columns}
    labels = {(row.task, row.fingerprint): row.label for row in found.rows}
    number = 0
    cells = []
    for i, row in enumerate(everything.rows):
        for j, column in enumerate(everything.columns):
            runs = everything.results.get((row, column))
            if runs is None:
                continue
            told = []
            for r in runs:
                told.append(_run(r, number, numbers[r.stack.path, r.stack.identity], estimated.get(r.key)))
                number += 1
            paper = published_results().get((row.task, column.title))
            cells.append(
                {
                    "row": i,
                    "column": j,
                    "main": id(runs[0]) in in_main,
                    "mark": in_main.get(id(runs[0]), ""),
                    "final": _cell(Cell.of(runs, "final")),
                    "best": _cell(Cell.of(runs, "best")),
                    "limits": {policy: _at_limits(at_every_limit(runs), policy) for policy in ("final", "best")},
                    "published": _published(paper),
                    "runs": told,
                }
            )
    return {
        "about": f"tracrl {tracrl.__version__}. Normalised with DSRL's constants. Published numbers: {CITATION}.",
        "unreadable": list(collection.unreadable),
        "notes": [*collection.notes, *found.notes],
        "rows": [
            _row(row, labels.get((row.task, row.fingerprint), row.label), i) for i, row in enumerate(everything.rows)
        ],
        "columns": [
            {
                "title": column.title,
                "label": column.label,
                "about": column.about,
                "colour": colours.get(column.about + column.method, j % len(COLOURS)),
            }
            for j, column in enumerate(everything.columns)
        ],
        "cells": cells,
        "stacks": [
            {
                "path": str(stack.path),
                "identity": stack.identity,
                "settings": stack.settings,
                "phase_end": next(iter(stack.run.phase_ends), 0),
                "changes": stack.changes,
                "versions": stack.run.versions,
                "device": stack.run.device,
                "precision": stack.precision,
            }
            for stack in stacks.values()
        ],
        "ablations": [_ablation(ablation) for ablation in ablations],
    }


def _row(row: Row, label: str, order: int) -> dict[str, Any]:
    return {
        "label": label,
        "task": row.task,
        "suite": row.suite,
        "source": row.source,
        "fingerprint": row.fingerprint,
        "order": order,
    }


def _run(r: Result, number: int, stack: int, estimated: Estimated | None) -> dict[str, Any]:
    best = r.scored("best")
    return {
        "id": number,
        "stack": stack,
        "limit": r.limit,
        "seed": r.seed,
        "final": [_rounded(r.rewards.mean()), _rounded(r.costs.mean())],
        "best": None if best is None else [_rounded(best[0].mean()), _rounded(best[1].mean())],
        "estimated": None if estimated is None else _estimated(estimated),
        "curve": [[step, _rounded(reward), _rounded(cost)] for step, reward, cost in r.curve],
        "loss": [[step, _rounded(loss)] for step, loss in r.losses],
    }


def _estimated(one: Estimated) -> dict[str, Any]:
    return {
        "reward": [_rounded(value) for value in one.reward],
        "cost": [_rounded(value) for value in one.cost],
        "shown": one.shown,
        "confidence": one.confidence,
        "ood": _rounded(one.ood_share),
        "basis": " ".join((*one.notes, ASSUMPTIONS)),
    }


def _cell(cell: Cell | None) -> dict[str, Any] | None:
    if cell is None:
        return None
    names = ("reward", "reward_std", "cost", "cost_std", "share_above", "cost_cvar")
    numbers = {name: None if (value := getattr(cell, name)) is None else _rounded(value) for name in names}
    return {**numbers, "solved": cell.solved, "safe": cell.safe, "kept": [cell.safe_parts, cell.parts]}


def _at_limits(runs: Sequence[Result], policy: str) -> list[dict[str, Any]]:
    return [{"limit": limit, **(_cell(cell) or {})} for limit, cell in Cell.at_limits(runs, policy).items()]


def _published(paper: Published | None) -> dict[str, float | None] | None:
    if paper is None:
        return None
    return {"reward": paper.reward, "reward_std": paper.reward_std, "cost": paper.cost, "cost_std": paper.cost_std}


def _ablation(ablation: Ablation) -> dict[str, Any]:
    series = []
    for row in ablation.rows():
        points = []
        for place, value in enumerate(ablation.values):
            runs = ablation.results.get((row, value))
            if runs is None:
                continue
            strata = strata_of_runs(runs)
            assert strata is not None
            rewards, costs = strata
            points.append(
                {
                    "place": place,
                    "reward": _interval(bootstrap(rewards, mean)),
                    "cost": _interval(bootstrap(costs, mean)),
                    "published": _published(published_value(ablation, row, value)),
                }
            )
        series.append({"label": row.label, "points": points})
    return {
        "symbol": ablation.symbol,
        "about": STUDIES[ablation.study].about,
        "values": [shown(value) for value in ablation.values],
        "series": series,
    }


def _interval(interval: Interval) -> dict[str, float | None]:
    low, high = (None if v is None else _rounded(v) for v in (interval.low, interval.high))
    return {"value": _rounded(interval.value), "low": low, "high": high}


def _rounded(value: float) -> float:
    """Four digits are more than the runs' spread deserves, and a quarter of the file's size."""
    return round(float(value), 4)


def _table(grid: Grid, is_open: bool) -> str:
    """A grid as HTML that needs no script."""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in (grid.corner, *grid.all_heads()))
    lines = []
    for line in grid.lines:
        cells = "".join(f'<td class="{entry.style}">{html.escape(entry.whole)}</td>' for entry in line.entries)
        lines.append(f"<tr{' class=average' if line.average else ''}><td>{html.escape(line.label)}</td>{cells}</tr>")
    caption = html.escape(" ".join((*grid.legend("colours"), *grid.caption, *grid.notes)))
    return (
        f"<details{' open' if is_open else ''}><summary>{html.escape(grid.title)}</summary>"
        f'<div class="table" tabindex="0" role="region" aria-label="{html.escape(grid.title)}"><table><thead><tr>{head}'
        f'</tr></thead><tbody>{"".join(lines)}</tbody></table></div><p class="soft small">{caption}</p></details>'
    )
