"""The tables of docs/research.md from what ``benchmarks.any_limit`` measured:

python -m benchmarks.any_limit_tables --out runs/any-limit
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.any_limit_choices import mark
from benchmarks.any_limit_setup import (
    BOLD,
    CONFIDENCES,
    INNER,
    MEAN,
    POOLS,
    TOLD_X,
    VARIANTS,
    file_of,
    limits_of,
    summary,
    unseen_of,
)
from tracrl.evaluation.scores import Scores
from tracrl.files import read_json
from tracrl.ope.estimates import Estimates
from tracrl.ope.inner_limits import choices_from
from tracrl.tasks.normalise import normalised_reward
from tracrl.tasks.table import all_tasks, get_task

ASIDE = (".training", ".estimates", ".judged")
"""files beside the scores"""
CHOSE = ("CarCircle", "BallRun", "BallCircle", "CarRun")
"""tasks whose results chose the recipe"""


def table(options: argparse.Namespace) -> None:
    """Markdown, suite by suite: the compared limits, the unseen ones, and what an inner limit would bring."""
    found = [read_json(file) for file in sorted(options.out.glob("*.json")) if not file.stem.endswith(ASIDE)]
    scores = {(f["task"], f["variant"]): Scores.from_dict(f["scores"]) for f in found}
    facts = {(f["task"], f["variant"]): f for f in found}
    known = [task for task in options.tasks or all_tasks() if {(task, "any"), (task, "trac")} & set(scores)]
    for suite in dict.fromkeys(get_task(task).suite for task in known):
        tasks = [task for task in known if get_task(task).suite == suite]
        for_every_limit = [task for task in tasks if (task, "any") in scores]
        print(f"# {suite}\n")
        if for_every_limit:
            of_variants(for_every_limit, scores, facts)
        for variant in (*VARIANTS, *POOLS):
            chosen_by_the_log(options, tasks, variant, scores, facts)
        estimated(options, tasks)
        for task in for_every_limit:
            inner_limits_alone(options, task, scores[task, "any"])


def of_variants(tasks: Sequence[str], scores: dict[tuple[str, str], Scores], facts: dict[tuple[str, str], Any]) -> None:
    """What every variant scored that was played."""
    order = [*VARIANTS, *(f"{v}, x {BOLD:g}" for v in TOLD_X), MEAN]
    variants = [v for v in order if any((task, v) in scores for task in tasks)]
    own = ", ".join(f"{limit:g}" for limit in limits_of(tasks[0]))
    print(f"Reward / cost, mean over limits {own} and three seeds; in brackets the safe policies of nine.\n")
    print("| task | best safe episode |", " | ".join(variants), "|")
    print("|---|---:|" + "---:|" * len(variants))
    for task in tasks:
        best = [facts[task, "any"]["best_safe"][f"{limit:g}"] for limit in limits_of(task)]
        cells = [cell(scores.get((task, variant)), limits_of(task)) for variant in variants]
        print(f"| {task} | {np.mean([b for b in best if b is not None]):.3f} |", " | ".join(cells), "|")
    whole = [v for v in variants if all((task, v) in scores for task in tasks)]
    means = {v: np.mean([summary(scores[task, v], limits_of(task))[:2] for task in tasks], axis=0) for v in whole}
    cells = [f"{means[v][0]:.3f} / {means[v][1]:.2f}" if v in means else "" for v in variants]
    print("| mean | |", " | ".join(cells), "|")
    print("\nIf the simulator chose inner limits, which no method may: each seed's best reward within the limit.\n")
    chosen = [v for v in whole if v not in ("trac", MEAN)]
    print("| task |", " | ".join(f"{v}" for v in chosen), "|")
    print("|---|" + "---:|" * len(chosen))
    bounds = {task: [upper_bound(task, scores[task, v]) for v in chosen] for task in tasks}
    for task in tasks:
        print(f"| {task} |", " | ".join(f"{bound:.3f}" for bound in bounds[task]), "|")
    print("| mean |", " | ".join(f"{bound:.3f}" for bound in np.mean(list(bounds.values()), axis=0)), "|")
    print("\nTraining time in seconds.\n")
    for task in tasks:
        times = [f"{v} {facts[task, v].get('training_seconds')}" for v in variants if (task, v) in facts]
        print(f"- {task}:", ", ".join(times))
    print("\nThe default at every limit that was played (reward / cost).\n")
    limits = sorted({limit for task in tasks for limit in (*limits_of(task), *unseen_of(task), *INNER)})
    limits = [limit for limit in limits if any(limit in scores[task, "any"].limits for task in tasks)]
    print("| task |", " | ".join(f"{limit:g}" for limit in limits), "|")
    print("|---|" + "---:|" * len(limits))
    for task in tasks:
        print(f"| {task} |", " | ".join(cell(scores[task, "any"], (limit,)) for limit in limits), "|")


def upper_bound(task: str, scores: Scores) -> float:
    """Mean reward over limits and seeds, each at the best of the played inner limits that keeps to the limit; NaN where
    there is none."""
    rewards, costs, seeds = scores.rewards.mean(1), scores.costs.mean(1), np.array(scores.seeds)
    best = [
        max(rewards[(seeds == seed) & (costs <= limit)], default=np.nan)
        for limit in limits_of(task)
        for seed in set(scores.seeds)
    ]
    return float(np.mean(best))


def chosen_by_the_log(
    options: argparse.Namespace,
    tasks: Sequence[str],
    variant: str,
    scores: dict[tuple[str, str], Scores],
    facts: dict[tuple[str, str], Any],
) -> None:
    """What a policy scores where the log alone chooses inner limit (and x, where it is told x); TraC and the best safe
    episode beside it."""
    rows: dict[str, dict[float, list[Chosen]]] = {}
    for task in tasks:
        if file_of(options, task, variant, ".judged.json").exists() and (task, "trac") in scores:
            rows[task] = {confidence: judged(options, task, variant, confidence) for confidence in CONFIDENCES}
    if not rows:
        return
    shown = [c for c in CONFIDENCES if all(row[c] for row in rows.values())]
    print(f"\n{variant}: inner limit (and x) chosen by the log alone, at these confidences (reward / cost).\n")
    print("| task | best safe episode | TraC |", " | ".join(f"{c:.0%}" for c in shown), "|")
    print("|---|---:|---:|" + "---:|" * len(shown))
    best = {
        task: np.mean([facts[task, "trac"]["best_safe"][f"{limit:g}"] for limit in limits_of(task)]) for task in rows
    }
    for task, row in rows.items():
        cells = [cell(scores[task, "trac"], limits_of(task)), *(chosen_cell(row[c]) for c in shown)]
        print(f"| {task} | {best[task]:.3f} |", " | ".join(cells), "|")
    for name, group in (
        ("mean", list(rows)),
        ("of those that chose", [t for t in rows if t in CHOSE]),
        ("of the others", [t for t in rows if t not in CHOSE]),
    ):
        if group:
            base = np.mean([summary(scores[task, "trac"], limits_of(task))[0] for task in group])
            cells = [gain([rows[task][c] for task in group], float(base)) for c in shown]
            print(f"| {name} | {np.mean([best[t] for t in group]):.3f} | {base:.3f} |", " | ".join(cells), "|")
    print("\nGap to the best safe episode: TraC's, and what is left of it.\n")
    for task, row in rows.items():
        gap = best[task] - summary(scores[task, "trac"], limits_of(task))[0]
        left = {c: best[task] - np.mean([one.reward for one in row[c]]) for c in shown}
        print(
            f"- {task}: {gap:.3f};", ", ".join(f"{c:.0%}: {own:.3f}, {own / gap:.2f} of it" for c, own in left.items())
        )
    print("\nIf the simulator chose among those that were played, which no method may: reward, and what is left.\n")
    for task in rows:
        reward, without = in_hindsight(options, task, variant)
        left = (best[task] - reward) / (best[task] - summary(scores[task, "trac"], limits_of(task))[0])
        print(f"- {task}: {reward:.3f}, {left:.2f} of TraC's gap" + (f"; {without} without any" if without else ""))
    print("\nEstimated and true cost of the policies that were played.\n")
    for task in rows:
        print(f"- {task}: {errors(options, task, variant)}")
    for confidence in shown:
        print(f"\nChosen at {confidence:.0%}: for each limit inner limit/x of the seeds, reward / cost.\n")
        for task, row in rows.items():
            for limit in limits_of(task):
                mine = [one for one in row[confidence] if one.limit == limit]
                picks = ", ".join(f"{one.inner:g}/{one.x:g}" + ("" if one.shown else " (not shown)") for one in mine)
                print(f"- {task} {limit:g}: {picks}: {chosen_cell(mine)}")


def estimated(options: argparse.Namespace, tasks: Sequence[str]) -> None:
    """What the log says of its own choices, of those that nobody played too."""
    print("\nThe choices as they are estimated (reward / cost), in brackets how many of them are shown to be safe.\n")
    for task in tasks:
        for variant in (*VARIANTS, *POOLS):
            file = file_of(options, task, variant, ".estimates.json")
            if file.exists():
                estimates = Estimates.load(file)
                cells = [f"{c:.0%}: {estimated_cell(task, estimates, c)}" for c in CONFIDENCES]
                print(f"- {task}, {variant}: {', '.join(cells)}")


def estimated_cell(task: str, estimates: Estimates, confidence: float) -> str:
    _, choices = choices_from(estimates, told_x(estimates), limits_of(task), confidence)
    reward = normalised_reward(get_task(task), np.array([choice.estimated_return for choice in choices])).mean()
    cost = np.mean([choice.cost / choice.limit for choice in choices])
    return f"{reward:.3f} / {cost:.2f} ({sum(choice.shown for choice in choices)} of {len(choices)})"


@dataclass(frozen=True)
class Chosen:
    """What one choice of the log scored."""

    limit: float
    inner: float
    x: float
    shown: bool
    reward: float
    cost: float
    """normalised"""


def judged(options: argparse.Namespace, task: str, variant: str, confidence: float) -> list[Chosen]:
    """What the log chooses for each limit and seed; empty where one of them was not played."""
    known = read_json(file_of(options, task, variant, ".judged.json"))
    estimates = Estimates.load(file_of(options, task, variant, ".estimates.json"))
    choices = choices_from(estimates, told_x(estimates), limits_of(task), confidence)[1]
    if missing := sum(mark(choice) not in known for choice in choices):
        why = f"{missing} of {len(choices)} choices were not played"
        print(f"left out: {task}, {variant} at {confidence:g}: {why}", file=sys.stderr)
        return []
    return [
        Chosen(
            c.limit,
            c.inner,
            float(c.x or 0),
            c.shown,
            float(np.mean(known[mark(c)]["rewards"])),
            float(np.mean(known[mark(c)]["costs"])) / c.limit,
        )
        for c in choices
    ]


def told_x(estimates: Estimates) -> list[float | None]:
    """The x of each candidate, by its name: "trac-any, x 50", or "trac-any" where it is told none."""
    return [float(x) if x else None for x in (name.partition(", x ")[2] for name in estimates.names)]


def in_hindsight(options: argparse.Namespace, task: str, variant: str) -> tuple[float, int]:
    """Mean reward over limits and seeds, each of the best that was played and keeps to the limit, and for how many
    there is none: those are left out."""
    known = read_json(file_of(options, task, variant, ".judged.json"))
    played = [(name.rpartition("seed ")[2], np.mean(p["rewards"]), np.mean(p["costs"])) for name, p in known.items()]
    best = [
        max((reward for of, reward, cost in played if of == seed and cost <= limit), default=None)
        for limit in limits_of(task)
        for seed in {of for of, _, _ in played}
    ]
    found = [reward for reward in best if reward is not None]
    return float(np.mean(found)), len(best) - len(found)


def errors(options: argparse.Namespace, task: str, variant: str) -> str:
    """How far the estimates of what was played are off."""
    known = read_json(file_of(options, task, variant, ".judged.json"))
    estimates = Estimates.load(file_of(options, task, variant, ".estimates.json"))
    names = (name.partition(", ")[2] for name in estimates.names)  # "trac-any, x 50", or "trac-any" alone
    place = {
        f"{x}, inner limit {limit:g}, seed {seed}".removeprefix(", "): i
        for i, (x, limit, seed) in enumerate(zip(names, estimates.limits, estimates.seeds, strict=True))
    }
    played = [place[name] for name in known]
    off = estimates.costs[played] - [np.mean(scores["costs"]) for scores in known.values()]
    return (
        f"{len(off)} policies, off by {np.abs(off).mean():.1f} on average ({off.mean():+.1f} in the mean, "
        f"{off.min():+.1f} to {off.max():+.1f}); their standard errors are {estimates.cost_errors[played].mean():.1f}"
    )


def chosen_cell(chosen: Sequence[Chosen]) -> str:
    safe = sum(one.cost <= 1 for one in chosen)
    reward, cost = np.mean([(one.reward, one.cost) for one in chosen], axis=0)
    return f"{reward:.3f} / {cost:.2f}" + ("" if safe == len(chosen) else f" ({safe})")


def gain(rows: Sequence[Sequence[Chosen]], base: float) -> str:
    """Over several tasks: mean reward, how much more that is, and the safe ones."""
    reward = np.mean([np.mean([one.reward for one in row]) for row in rows])
    safe = [one.cost <= 1 for row in rows for one in row]
    return f"{reward:.3f} ({reward / base - 1:+.1%}), {sum(safe)} of {len(safe)} safe"


def inner_limits_alone(options: argparse.Namespace, task: str, truth: Scores) -> None:
    """What the inner limits score that the log alone chooses, at several confidences; and those the truth would."""
    file = file_of(options, task, "any", ".estimates.json")
    if not file.exists():
        return
    estimates = Estimates.load(file)
    print(f"\n{task}: inner limits chosen by the log (reward / cost at the wanted limit, chosen limits by seed).\n")
    for confidence in (0.5, 0.7, 0.9):
        for limit in limits_of(task):
            rewards, costs, chosen = [], [], []
            for seed in dict.fromkeys(estimates.seeds):
                inner = choose_inner(estimates, seed, limit, confidence)
                chosen.append("none" if inner is None else f"{inner:g}")
                played = list(zip(truth.limits, truth.seeds, strict=True))
                place = played.index((limit if inner is None else inner, seed))
                rewards.append(truth.rewards[place].mean())
                costs.append(truth.costs[place].mean() / limit)
            safe = sum(cost <= 1 for cost in costs)
            print(
                f"- {confidence:.0%}, limit {limit:g}: {np.mean(rewards):.3f} / {np.mean(costs):.2f}, "
                f"{safe} of {len(costs)} safe, chosen {' '.join(chosen)}"
            )


def choose_inner(estimates: Estimates, seed: int, limit: float, confidence: float) -> float | None:
    """Of one seed's inner limits whose bound of cost is within the limit, the one of the highest estimated return."""
    bounds, lower = estimates.cost_bounds(confidence), estimates.return_bounds(confidence)
    passing = [i for i, s in enumerate(estimates.seeds) if s == seed and bounds[i] <= limit]
    return None if not passing else estimates.limits[max(passing, key=lambda i: float(lower[i]))]


def cell(scores: Scores | None, limits: tuple[float, ...]) -> str:
    if scores is None or not np.isin(scores.limits, limits).any():
        return ""
    reward, cost, safe = summary(scores, limits)
    count, _, total = safe.partition(" of ")
    return f"{reward:.3f} / {cost:.2f}" + ("" if count == total else f" ({count})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", metavar="TASK")
    parser.add_argument("--out", type=Path, default=Path("runs/any-limit"))
    table(parser.parse_args())


if __name__ == "__main__":
    main()
