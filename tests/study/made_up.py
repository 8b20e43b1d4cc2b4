"""Small studies: data with BallRun's sizes, and settings with which a stack trains in a second."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import write_hdf5
from tracrl.evaluation.scores import EvaluationProtocol, Scores
from tracrl.files import write_csv, write_json
from tracrl.methods.registry import get_method
from tracrl.policies.base import PolicyMetadata
from tracrl.policies.mlp import MLPPolicy
from tracrl.study.known_data import KnownDataSet
from tracrl.study.settings import changed
from tracrl.study.stack import StackSpec
from tracrl.tasks.table import get_task
from tracrl.train import checksums

TINY = ("hidden=[8]", "trac.batch_size=4", "trac.updates=60", "trac.clone_updates=20", "trac.warmup=5")
TINY_CLONING = ("hidden=[8]", "bc-all.batch_size=8", "bc-all.updates=60")


def ball_episodes(episodes: int = 40, steps: int = 20, seed: int = 0) -> Episodes:
    """Episodes of BallRun's sizes whose return and cost grow with how boldly they act."""
    generator = np.random.default_rng(seed)
    boldness = np.repeat(np.linspace(0, 1, episodes), steps)
    rows = episodes * steps
    observations = generator.normal(size=(rows, 7))
    timeouts = np.zeros(rows, bool)
    timeouts[steps - 1 :: steps] = True
    return Episodes.from_arrays(
        {
            "observations": observations,
            "actions": np.clip(boldness[:, None] * np.tanh(observations[:, :2]), -1, 1),
            "rewards": boldness,
            "costs": (generator.uniform(size=rows) < boldness).astype(float),
            "timeouts": timeouts,
            "final_observations": generator.normal(size=(episodes, 7)),
        },
        metadata={"task": "BallRun", "made_by": "made up for the tests"},
    )


def write_ball_data(directory: Path, **options: int) -> Path:
    path = directory / "BallRun.hdf5"
    write_hdf5(ball_episodes(**options), path)
    return path


def made_up_stack(
    task: str = "BallRun",
    method: str = "trac",
    limits: Sequence[float] = (10.0, 20.0, 40.0),
    seeds: Sequence[int] = (0, 10, 20),
    episodes: int = 4,
    source: Mapping[str, Any] | None = None,
    data: str | None = None,
    preset: Literal["full", "fast"] = "fast",
    **changes: Any,
) -> StackSpec:
    """A stack on data that are nowhere."""
    told = {"file": f"{task}.hdf5", "made_by": "made up for the tests", "task": task} if source is None else source
    settings = changed(get_method(method).preset(get_task(task).suite, preset), changes)
    fingerprint = data or f"{hash_of(task):032x}"
    known = KnownDataSet("nowhere", fingerprint, int(told.get("episodes", 40)), 800, task, told)
    return StackSpec(task, settings, tuple(limits), tuple(seeds), known, episodes)


def made_up_policy(stack: StackSpec) -> MLPPolicy:
    """Weights that act."""
    runs, task = stack.runs, get_task(stack.task)
    generator = np.random.default_rng(0)
    metadata = PolicyMetadata(
        stack.method.name,
        tuple(run.limit for run in runs),
        tuple(run.seed for run in runs),
        (-1.0,) * task.action_size,
        (1.0,) * task.action_size,
        stack.task,
    )
    sizes = (task.observation_size, task.action_size)
    weights = generator.normal(size=(len(runs), *sizes)).astype(np.float32)
    return MLPPolicy(metadata, {"weight0": weights, "bias0": np.zeros((len(runs), 1, sizes[1]), np.float32)})


def write_run(
    out: Path,
    *,
    name: str = "",
    task: str = "BallRun",
    method: str = "trac",
    limits: Sequence[float] = (10.0, 20.0, 40.0),
    seeds: Sequence[int] = (0, 10, 20),
    reward: float = 0.5,
    cost: float = 0.6,
    spread: float = 0.05,
    episodes: int = 4,
    source: Mapping[str, Any] | None = None,
    data: str | None = None,
    preset: Literal["full", "fast"] = "fast",
    with_checksums: bool = True,
    precision: str | None = None,
    protocol: EvaluationProtocol | None = None,
    **changes: Any,
) -> Path:
    """A finished run directory with made-up results around a normalised reward and cost."""
    facts = get_task(task)
    stack = made_up_stack(task, method, limits, seeds, episodes, source, data, preset, **changes)
    settings = stack.method
    path = out / (name or stack.name)
    generator = np.random.default_rng(abs(hash_of(stack.name)))
    runs = [(limit, seed) for limit in limits for seed in seeds]

    def scores(mean_reward: float, mean_cost: float) -> Scores:
        shape = (len(runs), episodes)
        rewards = mean_reward + spread * generator.normal(size=shape)
        costs = np.maximum(0, mean_cost + spread * generator.normal(size=shape))
        return Scores(
            task,
            tuple(limit for limit, _ in runs),
            tuple(seed for _, seed in runs),
            facts.min_return + rewards * (facts.max_return - facts.min_return),
            costs * np.array([limit for limit, _ in runs])[:, None],
            np.full(shape, min(100, facts.max_steps)),
            protocol,
        )

    recorded = {k: v for k, v in stack.config.items() if k not in ("device", "precision")}
    recorded |= {} if precision is None else {"device": "cpu", "precision": precision}
    write_json(path / "config.json", recorded)
    final, best = scores(reward, cost), scores(reward + 0.05, min(cost, 0.9))
    rows, losses = [], []
    for k in range(1, 6):
        step = settings.updates * k // 5
        at = final if k == 5 else scores(reward * (0.4 + 0.12 * k), cost * (1.6 - 0.12 * k))
        for i, (limit, seed) in enumerate(runs):
            common = {"step": step, "phase": "classification", "limit": f"{limit:g}", "seed": seed}
            rows.append(common | {name: f"{values[i]:.6g}" for name, values in at.means().items()})
            losses.append(common | {"loss": f"{2 / k + 0.1 * generator.uniform():.6g}"})
    write_csv(path / "evaluations.csv", rows, list(rows[0]))
    write_csv(path / "metrics.csv", losses, list(losses[0]))
    final.save(path / "scores.json")
    best.save(path / "best_scores.json")
    made_up_policy(stack).save(path / "policy.safetensors")
    if with_checksums:
        checksums.write(path)
    return path


def hash_of(text: str) -> int:
    """Python's own hash is another in every process."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=6).digest(), "big")
