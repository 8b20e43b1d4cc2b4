"""The benchmark's raw scores as CSV, and the tables of docs/benchmark.md from them.

    python tools/benchmark_results.py gather WORK --code COMMIT --machine "NVIDIA H200"   # adds to results/
    python tools/benchmark_results.py table --into docs/benchmark.md                       # from results/ alone

``results/runs.csv`` has a row for each run (task, data, method, preset, limit, seed), ``results/scores.csv`` one for
each episode that its final policy played, and ``results/data.csv`` one for each data set.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from tracrl.report.published import published_results
from tracrl.tasks.normalise import normalised_cost, normalised_reward
from tracrl.tasks.table import all_tasks, get_task

RESULTS = Path(__file__).parent.parent / "results"
RUN = (
    "run task data method preset standardise limit seed fingerprint code device precision machine episodes "
    "evaluation_seed"
)
SCORE = "run episode return cost length"
DATA = (
    "task data fingerprint made_by episodes rows lowest_return highest_return highest_cost limits safe unsafe best_safe"
)
REPOSITORY = ("BallRun", "BallCircle", "CarRun", "CarCircle")
EVEN = "-even"
COLUMNS = (("bc-all", "fast"), ("bc-safe", "fast"), ("trac", "fast"), ("trac", "middle"), ("trac", "full"))
TITLES = {"bc-all": "BC-All", "bc-safe": "BC-Safe", "trac": "TraC"}
Row = dict[str, Any]


def gather(work: Path, code: str, machine: str) -> None:
    """Add the runs below ``work`` to the tables; those that are there already are left alone."""
    runs, scores, data = (read(name) for name in ("runs", "scores", "data"))
    known = {key_of(row) for row in runs}
    number = max((int(row["run"]) for row in runs), default=-1) + 1
    for file in sorted(work.glob("runs/*/*/scores.json")):
        source, (method, _, preset) = file.parent.parent.name, file.parent.name.rpartition("-")
        config, played = (json.loads((file.parent / name).read_text()) for name in ("config.json", "scores.json"))
        training = json.loads((file.parent / "training.json").read_text())
        for i, (limit, seed) in enumerate(zip(played["limits"], played["seeds"], strict=True)):
            row = {
                "run": number,
                "task": played["task"],
                "data": data_name(source),
                "method": method,
                "preset": preset,
                "standardise": config["settings"].get("standardise", "off"),
                "limit": f"{limit:g}",
                "seed": seed,
                "fingerprint": config["data"]["fingerprint"],
                "code": code,
                "device": training["device"],
                "precision": "bfloat16" if method == "trac" and training["device"] == "cuda" else "float32",
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
                scores.append(dict(zip(SCORE.split(), numbers, strict=True)))
            number += 1
    there = {(row["task"], row["data"], row["fingerprint"]) for row in data}
    for file in sorted(work.glob("data/*.json")):
        summary, source = json.loads(file.read_text()), file.stem
        if (summary["task"], data_name(source), summary["fingerprint"]) not in there:
            data.append(data_row(summary, source))
    for name, columns, rows in (("runs", RUN, runs), ("scores", SCORE, scores), ("data", DATA, data)):
        write(name, columns.split(), rows)


def data_name(source: str) -> str:
    if source.endswith(EVEN):
        return "even"
    return "repository" if source in REPOSITORY else "collected"


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
    return tuple(str(row[name]) for name in ["task", "method", "preset", "standardise", "limit", "seed", "fingerprint"])


def read(name: str) -> list[Row]:
    path = RESULTS / f"{name}.csv"
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write(name: str, columns: list[str], rows: list[Row]) -> None:
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


Stack = tuple[str, str, str, str]
"""task, data, method, preset"""


def stacks() -> dict[Stack, tuple[float, float, int, int]]:
    """Mean normalised reward and cost of each stack's runs, the number of safe ones and of all."""
    episodes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in read("scores"):
        episodes[row["run"]].append((float(row["return"]), float(row["cost"])))
    means: dict[Stack, list[tuple[float, float]]] = defaultdict(list)
    for run in read("runs"):
        returns, costs = np.array(episodes[run["run"]]).T
        reward = normalised_reward(get_task(run["task"]), returns).mean()
        cost = normalised_cost(costs, float(run["limit"])).mean()
        means[run["task"], run["data"], run["method"], run["preset"]].append((float(reward), float(cost)))
    table = {}
    for stack, runs in means.items():
        reward, cost = np.mean(runs, axis=0)
        table[stack] = float(reward), float(cost), sum(cost <= 1 for _, cost in runs), len(runs)
    return table


def tables() -> dict[str, str]:
    """Each table of the page by its name."""
    scored, data = stacks(), read("data")
    titles = [f"{TITLES[method]}, {preset}" for method, preset in COLUMNS]
    order = [task for task in all_tasks() if any(stack[0] == task for stack in scored)]

    def cell(stack: Stack) -> str:
        if stack not in scored:
            return ""
        reward, cost, safe, runs = scored[stack]
        pair = f"{reward:.2f} / {cost:.2f}".replace("-", "−")
        return f"**{pair}** {safe}/{runs}" if cost <= 1 else f"{pair} {safe}/{runs}"

    def paper(task: str) -> str:
        told = published_results()[task, TITLES["trac"]]
        return f"{told.reward:.2f} / {told.cost:.2f}".replace("-", "−")

    main = [
        [get_task(task).suite, task, *(cell((task, kind, *column)) for column in COLUMNS), paper(task)]
        for task in order
        for kind in ("repository", "collected")
        if any(stack[:2] == (task, kind) for stack in scored)
    ]
    both = [task for task in order if any(stack[:2] == (task, "even") for stack in scored)]
    kinds = {"even": "evenly", "collected": "near the front"}
    even = [
        [task, words, *(cell((task, kind, *column)) for column in COLUMNS[1:4])]
        for task in both
        for kind, words in kinds.items()
    ]
    held = [
        [
            row["task"],
            row["episodes"],
            f"{float(row['lowest_return']):.4g} … {float(row['highest_return']):.4g}".replace("-", "−"),
            f"{float(row['highest_cost']):.4g}",
            *(row[name].replace(" ", " / ") for name in ("safe", "unsafe", "best_safe")),
            f"`{row['fingerprint'][:12]}`",
            f"`{row['made_by']}`",
        ]
        for row in sorted(data, key=lambda row: list(all_tasks()).index(row["task"]))
        if row["data"] == "collected"
    ]
    facts = ["task", "episodes", "returns", "highest cost", "safe", "unsafe", "best safe", "fingerprint", "made by"]
    return {
        "scores": markdown(["suite", "task", *titles, "the paper's TraC, on DSRL's data"], main),
        "thinning": markdown(["task", "thinned", *titles[1:4]], even),
        "data": markdown(facts, held),
    }


def markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def page_with_tables(text: str) -> str:
    """The page with each table anew between its marks."""
    for name, table in tables().items():
        begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        text = f"{before}{begin}\n\n{table}\n\n{end}{after}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = parser.add_subparsers(dest="action", required=True)
    gathering = parts.add_parser("gather")
    gathering.add_argument("work", type=Path)
    gathering.add_argument("--code", required=True, help="the commit that the runs were made with")
    gathering.add_argument("--machine", default="")
    shown = parts.add_parser("table")
    shown.add_argument("--into", type=Path)
    options = parser.parse_args()
    if options.action == "gather":
        gather(options.work, options.code, options.machine)
    elif options.into is None:
        print("\n\n".join(tables().values()))
    else:
        options.into.write_text(page_with_tables(options.into.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
