"""``tracrl evaluate``, and how a run directory is shown."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from tracrl.cli.console import console
from tracrl.errors import TracrlError


@dataclass
class EvaluateOptions:
    """Play the policies of a run in their simulator and print what they score."""

    run: tyro.conf.Positional[Path]
    """a run directory or a policy file"""
    task: str | None = None
    """the task, where the run does not say it"""
    episodes: int = 20
    """episodes for each policy"""
    seed: int = 0
    """determines the episodes"""
    workers: int | None = None
    """simulator processes; without it, one per core"""
    video: Path | None = None
    """record one episode of the first policy as .mp4 or .gif"""


def evaluate(options: EvaluateOptions) -> int:
    from tracrl.evaluation.evaluate import SimulatorPool
    from tracrl.policies.load import load_policy
    from tracrl.train.checksums import renew
    from tracrl.train.directory import RunDirectory

    directory = RunDirectory(options.run) if options.run.is_dir() else None
    policy = load_policy(options.run)
    task = options.task or policy.metadata.task
    if task is None:
        raise TracrlError(f"{options.run} does not say which task it is for: add --task.")
    if options.video is not None:
        return _record(policy, task, options)
    with SimulatorPool(task, options.workers) as pool:
        scores = pool.evaluate(policy, episodes=options.episodes, seed=options.seed)
        if directory is None:
            console.print(scores.table(f"{options.run}"))
            return 0
        scores.save(directory.scores)
        if directory.best.exists():
            best = pool.evaluate(load_policy(directory.best), episodes=options.episodes, seed=options.seed)
            best.save(directory.best_scores)
    renew(directory.path)
    show_run(directory.path)
    return 0


def _record(policy: Any, task: str, options: EvaluateOptions) -> int:
    from tracrl.envs.video import record_video

    assert options.video is not None
    score = record_video(task, policy[0], options.video, options.seed)
    console.print(
        f"Video: {options.video} ({score.steps} steps, return {score.episode_return:.1f}, "
        f"cost {score.episode_cost:.1f})",
    )
    return 0


def show_run(path: Path) -> None:
    """Tables and pictures of a run directory."""
    from tracrl.evaluation.scores import Scores
    from tracrl.methods.registry import get_method
    from tracrl.report.run_figures import plot_curves, plot_scores
    from tracrl.train.directory import RunDirectory
    from tracrl.train.logs import read_log

    directory = RunDirectory(path)
    config = directory.read_config()
    title = f"{get_method(config['method']).title} on {config['task'] or 'own data'}"
    pictures = []
    if directory.scores.exists():
        scores = Scores.load(directory.scores)
        console.print()
        if directory.best_scores.exists():
            best = Scores.load(directory.best_scores)
            console.print(best.table(f"{title}: best policy on the way (chosen in the simulator)"), style="dim")
        console.print(scores.table(f"{title}: final policy"))
        plot_scores(scores, path / "scores.png", f"{title}: final policies, {scores.returns.shape[1]} episodes each")
        pictures.append(path / "scores.png")
    if evaluations := read_log(directory.evaluations):
        cloned = config["settings"].get("clone_updates")
        plot_curves(
            evaluations, path / "curves.png", f"{title}: learning curves", {"cloning": cloned} if cloned else {}
        )
        pictures.append(path / "curves.png")
    console.print(f"Run directory: {path}", soft_wrap=True)
    if pictures:
        console.print(f"Pictures: {' '.join(map(str, pictures))}", soft_wrap=True)
