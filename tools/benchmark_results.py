"""The benchmark's raw scores as CSV, and what the docs show of them.

    python tools/benchmark_results.py gather WORK --code COMMIT --machine "NVIDIA H200"   # adds to results/
    python tools/benchmark_results.py docs                                                 # from results/ alone

The files are described in ``tracrl/report/committed.py``; ``tracrl report results`` makes the whole report of them.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tracrl.data.locate import load_dataset
from tracrl.data.summary import summarise
from tracrl.files import replacing
from tracrl.report.benchmark import benchmark_tables
from tracrl.report.committed import COLUMNS, Committed, read_committed, read_table
from tracrl.report.figures import COLOURS, LIMIT_LINE, panels, plot_ablation, scored_suites
from tracrl.report.groups import Ablation, Overview, find_ablations, overview
from tracrl.report.scatter import plot_scatter

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PAGES = (ROOT / "docs" / "benchmark.md", ROOT / "docs" / "results.md")
CURVE_COLUMNS = ("task", "fingerprint", "preset", "limit", "seed", "step", "reward", "cost", "code")
DRAWN = ("x", "eta", "alpha")
"""ablations that the docs have a picture of"""
REPOSITORY = ("BallRun", "BallCircle", "CarRun", "CarCircle")
Row = dict[str, Any]


def gather(work: Path, code: str, machine: str) -> None:
    """Add the runs below ``work`` to the tables; those that are there already are left alone."""
    tables: list[list[Row]] = [[dict(row) for row in read_table(RESULTS, name)] for name in COLUMNS]
    runs, scores, data = tables
    curves = read_curves()
    known = {key_of(row) for row in runs}
    number = max((int(row["run"]) for row in runs), default=-1) + 1
    for file in sorted(work.glob("runs/*/*/scores.json")):
        source = file.parent.parent.name
        config, played = (json.loads((file.parent / name).read_text()) for name in ("config.json", "scores.json"))
        training = json.loads((file.parent / "training.json").read_text())
        curves += curve_of(file.parent, config, training, code)
        for i, (limit, seed) in enumerate(zip(played["limits"], played["seeds"], strict=True)):
            row = {
                "run": number,
                "task": played["task"],
                "data": data_name(source),
                **{name: training[name] for name in ("method", "preset", "changes")},
                "standardise": config["settings"].get("standardise", "off"),
                "limit": f"{limit:g}",
                "seed": seed,
                "fingerprint": config["data"]["fingerprint"],
                "code": code,
                "device": training["device"],
                "precision": config["precision"],
                "machine": training.get("machine", machine),
                "episodes": len(played["returns"][i]),
                "evaluation_seed": 0,
            }
            if key_of(row) in known:
                continue
            runs.append(row)
            episodes = zip(played["returns"][i], played["costs"][i], played["lengths"][i], strict=True)
            for episode, (total, cost, length) in enumerate(episodes):
                numbers = (number, episode, f"{total:.6g}", f"{cost:.6g}", length)
                scores.append(dict(zip(COLUMNS["scores"], numbers, strict=True)))
            number += 1
    summaries = [(file.stem, json.loads(file.read_text())) for file in sorted(work.glob("data/*.json"))]
    summaries += [(task, asdict(summarise(load_dataset(task)))) for task in REPOSITORY]
    there = {row["fingerprint"] for row in data}
    data += [data_row(summary, source) for source, summary in summaries if summary["fingerprint"] not in there]
    last = {tuple(row[name] for name in CURVE_COLUMNS[:6]): row for row in curves}  # a later training in place of it
    columns = {**COLUMNS, "curves": CURVE_COLUMNS}
    for name, rows in (("runs", runs), ("scores", scores), ("data", data), ("curves", list(last.values()))):
        with replacing(RESULTS / f"{name}.csv") as aside, aside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns[name], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


def curve_of(run: Path, config: Row, training: Row, code: str) -> Iterator[Row]:
    """What TraC, as a preset has it, scored on the way, if it was."""
    if training["method"] != "trac" or training["changes"]:
        return
    with (run / "evaluations.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            yield {
                "task": config["data"]["task"],
                "fingerprint": config["data"]["fingerprint"],
                "preset": training["preset"],
                **{name: row[name] for name in ("limit", "seed", "step")},
                "reward": row["normalised_reward"],
                "cost": row["normalised_cost"],
                "code": code,
            }


def read_curves() -> list[Row]:
    with (RESULTS / "curves.csv").open(newline="", encoding="utf-8") as file:
        return [dict(row) for row in csv.DictReader(file)]


def data_name(source: str) -> str:
    """What follows the task's name: another choice of episodes, to be compared."""
    other = source.partition("-")[2]
    return other or ("repository" if source in REPOSITORY else "collected")


def data_row(summary: Row, source: str) -> Row:
    """What a data set holds; several limits are separated by spaces."""
    return {
        "task": summary["task"],
        "data": data_name(source),
        "fingerprint": summary["fingerprint"],
        "made_by": summary["made_by"],
        "episodes": summary["episodes"],
        "rows": summary["transitions"],
        "lowest_return": f"{summary['returns']['low']:.6g}",
        "highest_return": f"{summary['returns']['high']:.6g}",
        "highest_cost": f"{summary['costs']['high']:.6g}",
        "limits": " ".join(f"{at['limit']:g}" for at in summary["limits"]),
        "safe": " ".join(str(at["safe"]) for at in summary["limits"]),
        "unsafe": " ".join(str(at["unsafe"]) for at in summary["limits"]),
        "best_safe": " ".join(f"{at['best_safe_score']:.2f}" for at in summary["limits"]),
    }


def key_of(row: Row) -> tuple[str, ...]:
    names = ("task", "method", "preset", "changes", "standardise", "limit", "seed", "fingerprint")
    return tuple(str(row[name]) for name in names)


def benchmark() -> tuple[Overview, Committed, list[Ablation]]:
    committed = read_committed(RESULTS)
    ablations = find_ablations(committed.results)
    return overview(committed.results, ablations).with_all_tasks(), committed, ablations


def page_with_tables(text: str) -> str:
    """The page with each table that it shows anew between its marks."""
    for name, grid in benchmark_tables(*benchmark()).items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        if begin in text:
            before, _, rest = text.partition(begin)
            _, _, after = rest.partition(end)
            text = f"{before}{begin}\n\n{grid.markdown(title=False)}\n{end}{after}"
    return text


def numbers_of(found: Overview, suite: str) -> str:
    """A hash of what a suite's scatter plot shows. Its file carries it, so a test can tell whether it is up to date."""
    cells = [
        (row.label, column.label, f"{cell.reward:.4f}", f"{cell.cost:.4f}", cell.safe)
        for row in found.rows
        for column in found.columns
        if row.suite == suite and (cell := found.cell(row, column, "final")) is not None
    ]
    return hashlib.blake2b(json.dumps(cells).encode(), digest_size=8).hexdigest()


def draw_all() -> None:
    found, _, ablations = benchmark()
    for suite in scored_suites(found):
        save_small(partial(plot_scatter, found, suite), scatter_of(suite), numbers_of(found, suite))
    for ablation in (ablation for ablation in ablations if ablation.study in DRAWN):
        save_small(partial(plot_ablation, ablation), picture_of(f"ablation-{ablation.study}"))
    drawn = {(row["task"], row["preset"]) for row in read_curves()}
    for task in sorted(task for task, preset in drawn if preset == "full" and (task, "fast") in drawn):
        save_small(partial(plot_presets, task), picture_of(f"presets-{task}"))


def save_small(draw: Callable[[Path], None], target: Path, numbers: str = "") -> None:
    """A picture with few colours: half of the size, and none is merged."""
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "drawn"
        draw(drawn)
        told = PngInfo()
        if numbers:
            told.add_text("numbers", numbers)
        with Image.open(drawn.with_suffix(".png")) as picture:
            few = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
            few.save(target, pnginfo=told, optimize=True)


def plot_presets(task: str, path: Path) -> None:
    """Reward and cost of TraC along its training by each preset: mean over its runs, and the middle half of them."""
    rows = [row for row in read_curves() if row["task"] == task]
    with panels(path, 1, 2, f"{task}: TraC along its training", 4.6, 3.2) as ((rewards, costs),):
        for colour, preset in zip(COLOURS, ("fast", "full"), strict=False):
            mine = [row for row in rows if row["preset"] == preset]
            steps = sorted({int(row["step"]) for row in mine})
            for axes, part in ((rewards, "reward"), (costs, "cost")):
                values = [[float(row[part]) for row in mine if int(row["step"]) == step] for step in steps]
                along = [100 * step / steps[-1] for step in steps]
                label = f"{preset}, {steps[-1]:,} updates"
                axes.plot(along, [np.mean(v) for v in values], color=colour, marker="o", ms=3, lw=1.4, label=label)
                lower, upper = (np.array([np.percentile(v, q) for v in values]) for q in (25, 75))
                axes.fill_between(along, lower, upper, color=colour, alpha=0.13, lw=0)
        for axes, name in ((rewards, "normalised reward"), (costs, "normalised cost")):
            axes.set_xlabel("per cent of the updates")
            axes.set_ylabel(name)
            axes.grid(alpha=0.25)
        costs.axhline(1, **LIMIT_LINE)
        costs.set_ylim(bottom=0)
        rewards.legend(frameon=False, fontsize=8, loc="lower right")


def picture_of(name: str) -> Path:
    return ROOT / "docs" / "results" / f"{name}.png"


def scatter_of(suite: str) -> Path:
    return picture_of(f"benchmark-{suite}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="action", required=True)
    gathering = parts.add_parser("gather")
    gathering.add_argument("work", type=Path)
    gathering.add_argument("--code", required=True, help="the commit that the runs were made with")
    gathering.add_argument("--machine", default="")
    parts.add_parser("docs")
    options = parser.parse_args()
    if options.action == "gather":
        gather(options.work, options.code, options.machine)
    else:
        for page in PAGES:
            page.write_text(page_with_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
        draw_all()


if __name__ == "__main__":
    main()
