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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from tracrl.data.locate import load_dataset
from tracrl.data.summary import summarise
from tracrl.files import replacing
from tracrl.report.benchmark import benchmark_tables
from tracrl.report.committed import COLUMNS, Committed, read_committed, read_table
from tracrl.report.figures import scored_suites
from tracrl.report.groups import Ablation, Overview, find_ablations, overview
from tracrl.report.scatter import plot_scatter

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results"
PAGES = (ROOT / "docs" / "benchmark.md", ROOT / "docs" / "results.md")
REPOSITORY = ("BallRun", "BallCircle", "CarRun", "CarCircle")
Row = dict[str, Any]


def gather(work: Path, code: str, machine: str) -> None:
    """Add the runs below ``work`` to the tables; those that are there already are left alone."""
    tables: list[list[Row]] = [[dict(row) for row in read_table(RESULTS, name)] for name in COLUMNS]
    runs, scores, data = tables
    known = {key_of(row) for row in runs}
    number = max((int(row["run"]) for row in runs), default=-1) + 1
    for file in sorted(work.glob("runs/*/*/scores.json")):
        source = file.parent.parent.name
        config, played = (json.loads((file.parent / name).read_text()) for name in ("config.json", "scores.json"))
        training = json.loads((file.parent / "training.json").read_text())
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
    for name, rows in (("runs", runs), ("scores", scores), ("data", data)):
        with replacing(RESULTS / f"{name}.csv") as aside, aside.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS[name], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


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


def draw_scatters() -> None:
    found, *_ = benchmark()
    for suite in scored_suites(found):
        with tempfile.TemporaryDirectory() as folder:
            drawn = Path(folder) / "scatter"
            plot_scatter(found, suite, drawn)
            told = PngInfo()
            told.add_text("numbers", numbers_of(found, suite))
            with Image.open(drawn.with_suffix(".png")) as picture:  # few colours: half of the size; none is merged
                few = picture.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE)
                few.save(scatter_of(suite), pnginfo=told, optimize=True)


def scatter_of(suite: str) -> Path:
    return ROOT / "docs" / "results" / f"benchmark-{suite}.png"


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
        draw_scatters()


if __name__ == "__main__":
    main()
