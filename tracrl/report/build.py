"""The report: tables, figures and the page, from run directories or from results that were written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.files import replacing
from tracrl.report.benchmark import ON_COLLECTED_DATA, benchmark_tables
from tracrl.report.calibrated import calibrated_grid, calibrated_of
from tracrl.report.cloud import plot_cloud, row_of
from tracrl.report.collection import Collection, collect
from tracrl.report.committed import is_committed, read_committed
from tracrl.report.csv_files import limits_csv, results_csv, runs_csv
from tracrl.report.estimated import estimated_of, estimates_grid
from tracrl.report.figures import name_of, plot_all, scored_suites
from tracrl.report.grid import Grid
from tracrl.report.groups import Overview, find_ablations, overview
from tracrl.report.limits import verdicts_grid
from tracrl.report.own_data import own_data_grid
from tracrl.report.page import make_page
from tracrl.report.scatter import plot_scatter
from tracrl.report.tables import (
    ablation_grid,
    main_grid,
    published_grid,
    statistics_grid,
)

FEW_LINES = 30
"""so many are shown on a terminal; more are in the files"""
FORMATS = {"txt": Grid.text, "md": Grid.markdown, "tex": Grid.latex, "csv": Grid.csv}


def make_report(
    paths: Sequence[Path],
    out: Path | None,
    console: Console,
    *,
    figures: bool = True,
    data: Sequence[Episodes] = (),
    quiet: bool = False,
) -> Path:
    """Write the report below ``out`` and show the main table; the page's path.

    ``data``: episodes that runs were trained on, drawn behind the policies. ``quiet``: no tables, only what is to be
    noted and where everything is.
    """
    if written_down := [path for path in paths if is_committed(path)]:
        if len(paths) > 1:
            raise TracrlError(f"{written_down[0]} holds results that were written down: report it by itself.")
        committed = read_committed(paths[0])
        collection = Collection((*committed.results, *committed.others), (ON_COLLECTED_DATA,))
        ablations = find_ablations(committed.results)
        found = overview(committed.results, ablations).with_all_tasks()
        grids = benchmark_tables(found, committed, ablations)
    else:
        collection = collect(paths)
        ablations = find_ablations([result for result in collection.results if not result.stack.is_own])
        found = overview(collection.results, ablations)
        grids = {}
    out = out or paths[0] / "report"
    if out.exists() and not out.is_dir():
        raise TracrlError(f"{out} is a file; --out is the directory for the report.")

    tasks = found.of_tasks()
    clouds = {f"data-{name_of(row)}": (row, episodes) for episodes in data for row in [row_of(tasks, episodes)]}
    if tasks.rows:
        grids["main-final"] = main_grid(tasks, "final")
        if any(result.best_rewards is not None for result in collection.results):
            grids["main-best"] = main_grid(tasks, "best")
        grids |= {
            "published": published_grid(tasks),
            "aggregates": statistics_grid(tasks),
            **{f"ablation-{ablation.study}": ablation_grid(ablation) for ablation in ablations},
        }
    grids |= more_grids(found, collection)
    estimated, problems = estimated_of(collection.results)
    calibrated, more_problems = calibrated_of(collection.stacks)
    collection = replace(collection, notes=(*collection.notes, *problems, *more_problems))
    if estimated:
        grids["estimates"] = estimates_grid(collection.results, estimated)
    if calibrated:
        grids["calibrated"] = calibrated_grid(collection.stacks, calibrated)
    for name, grid in grids.items():
        for suffix, formatted in FORMATS.items():
            _write(out / "tables" / f"{name}.{suffix}", formatted(grid))
    _write(out / "tables" / "results.csv", results_csv(found))
    _write(out / "tables" / "results-by-limit.csv", limits_csv(found))
    _write(out / "tables" / "runs.csv", runs_csv(collection.results))
    if figures and tasks.rows:
        plot_all(tasks, ablations, out / "figures")
        for suite in scored_suites(tasks):
            plot_scatter(tasks, suite, out / "figures" / f"scatter-{suite}")
        for name, (row, episodes) in clouds.items():
            plot_cloud(tasks, row, episodes, out / "figures" / name)
    _write(out / "unreadable.txt", "".join(f"{sentence}\n" for sentence in collection.unreadable))
    page = out / "report.html"
    _write(page, make_page(collection, found, ablations, list(grids.values()), estimated))

    # Ablations that were written down have one table together.
    shown = {"suites", "methods", "ablations", "own-data", "calibrated"}
    shown |= set() if written_down else {name for name in grids if name.startswith("ablation-")}
    if "verdicts" in grids and len(grids["verdicts"].lines) <= FEW_LINES:
        shown.add("verdicts")
    for i, (name, grid) in enumerate(grids.items()):
        if not quiet and (i == 0 or name in shown):
            console.print("" if i == 0 else "\n", end="")
            grid.show(console)
    for sentence in collection.unreadable:
        console.print(f"unreadable: {sentence}", markup=False, soft_wrap=True)
    for note in collection.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    console.print(
        f"\nPage: {page}\nTables (text, Markdown, LaTeX, CSV): {out / 'tables'}"
        + (f"\nFigures (PNG, SVG): {out / 'figures'}" if figures and tasks.rows else "")
        + "".join(f"\nData and policies: {out / 'figures' / name}.png" for name in clouds if figures),
        markup=False,
        soft_wrap=True,
    )
    return page


def more_grids(found: Overview, collection: Collection) -> dict[str, Grid]:
    """What is told of each limit, and of data of one's own."""
    own, grids = found.of_own_data(), {}
    if own.rows or collection.unscored_own:
        grids["own-data"] = own_data_grid(own, collection.unscored_own)
    if found.results:
        grids["verdicts"] = verdicts_grid(found)
    return grids


def show_results(collection: Collection, console: Console) -> None:
    """The tables on the terminal, and nothing else."""
    found = overview(collection.results)
    tasks = found.of_tasks()
    grids = {"main-final": main_grid(tasks, "final")} if tasks.rows else {}
    grids |= more_grids(found, collection)
    for name, grid in grids.items():
        if name != "verdicts" or len(grid.lines) <= FEW_LINES:
            console.print()
            grid.show(console)


def _write(path: Path, text: str) -> None:
    with replacing(path) as aside:
        # A path may hold bytes that are no UTF-8.
        aside.write_bytes(text.encode("utf-8", "backslashreplace"))
