"""From a simulator to a data set in one call."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray

import tracrl
from tracrl.claims import BusyError, Claim, alive
from tracrl.collect.behaviour import Behaviour
from tracrl.collect.driver import DRIVERS, Driver
from tracrl.collect.learner import Learner, LearnerSettings
from tracrl.collect.ppo import PPOSettings
from tracrl.collect.practised import Practised, has_practised, practised, reach_of
from tracrl.collect.progress import Progress, Silence
from tracrl.collect.recorder import Recorder, RecorderSettings
from tracrl.collect.recording import Recording
from tracrl.collect.rollout import to_box
from tracrl.collect.thinning import CELLS, EVERYWHERE, FRONT, SHARE, Region, thin
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import read_hdf5, write_hdf5
from tracrl.data.limits import default_limits
from tracrl.envs.environment import EnvInfo, EnvSpec
from tracrl.envs.pool import EnvPool
from tracrl.errors import TracrlError
from tracrl.files import read_json, write_json
from tracrl.settings import Episodes as EpisodeCount
from tracrl.settings import Range, Seed, checked
from tracrl.tasks.table import get_task

CLAIM, RECIPE, LEARNER = "claim.json", "recipe.json", "learner.safetensors"
FLOAT_BITS = 24
"""Significant bits of a float32."""
NOTE = "Collected by tracrl; not a DSRL data set, so results on it are not DSRL results."


@dataclass(frozen=True)
class CollectSettings:
    """The numbers behind a collection that no task needs to change."""

    learner: LearnerSettings = field(default_factory=LearnerSettings)
    recorder: RecorderSettings = field(default_factory=RecorderSettings)
    cells: int = CELLS
    """cells along each axis of the plane, for the thinning"""
    share: float = SHARE
    """share of the episodes that is to be safe, and unsafe, at each limit"""
    front: float = FRONT
    """how much more episodes are kept near the best return for their cost"""
    crop: bool = True
    """whether to prefer episodes in the region of the plane that DSRL's data of the task lie in"""


def collect(
    env: str | EnvSpec,
    *,
    steps: int = 1_000_000,
    episodes: int = 1_000,
    out: str | Path | None = None,
    seed: int = 0,
    limits: Sequence[float] | None = None,
    workers: int | None = None,
    resume: bool = False,
    compact: bool = False,
    observation_bits: int = FLOAT_BITS,
    progress: Progress | None = None,
    settings: CollectSettings | None = None,
) -> Path:
    """Train a behaviour for ``steps`` steps, record ``episodes`` episodes that cover the cost-return plane, write them.

    ``env`` is a task's name, a Gymnasium id, ``module:Class``, ``module:EnvId``, or an :class:`EnvSpec`. ``limits`` are
    the cost limits at which there should be both safe and unsafe episodes; by default the task's, else some that divide
    the recorded episodes. ``out`` is ``<task>.hdf5`` in the current directory by default; what a stopped collection
    goes on from with ``resume`` lies beside it in ``<out>.part`` until it is done. ``compact`` halves the file by
    leaving ``next_observations`` out, which other libraries want; ``observation_bits`` is how many significant bits of
    each observation are kept, of the 24 of a float32: with 12 a file is about a third smaller.

    Nothing is trained for MetaDrive's tasks, where the simulator's driver model drives, and for the Goal, Button and
    Push tasks, whose behaviours have practised before.

    The file is determined by environment, steps, episodes, seed, limits, settings and the versions of what computes,
    not by the number of ``workers`` (processes; by default one per core) nor by interruptions.
    """
    spec = _within_reach(EnvSpec.of(env))
    settings = settings or default_settings(spec)
    progress = progress or Silence()
    _check(steps, episodes, seed, limits, observation_bits)
    path = Path(out) if out is not None else Path(f"{_file_name(spec)}.hdf5")
    recipe = _recipe(spec, steps, episodes, seed, limits, compact, observation_bits, settings)
    parts = path.with_name(f"{path.name}.part")
    if alive(parts / CLAIM):
        raise BusyError(parts / CLAIM)
    if _open(path, parts, recipe, resume):
        return path
    # One collection at a time: what two write side by side would be taken for one.
    with Claim(parts / CLAIM) as claim:
        if not _open(path, parts, recipe, resume):
            try:
                _collect(
                    spec, path, parts, recipe, claim, settings=settings, limits=limits, workers=workers,
                    progress=progress,
                )  # fmt: skip
            except BaseException:
                if not any(parts.glob("*.safetensors")):  # nothing to go on from, so nothing is left behind
                    (parts / RECIPE).unlink(missing_ok=True)
                raise
        for left in parts.iterdir():
            if left != claim.path:
                left.unlink(missing_ok=True)
    return path


def _collect(
    spec: EnvSpec,
    path: Path,
    parts: Path,
    recipe: dict[str, Any],
    claim: Claim,
    *,
    settings: CollectSettings,
    limits: Sequence[float] | None,
    workers: int | None,
    progress: Progress,
) -> None:
    steps, episodes, seed = recipe["steps"], recipe["episodes"], recipe["seed"]
    known = _limits(spec, limits)
    region = _region(spec) if settings.crop else EVERYWHERE
    with EnvPool(spec, workers) as pool, progress:
        write_json(parts / RECIPE, recipe)
        behaviours: Sequence[Behaviour] = untrained(spec)
        origins: list[dict[str, Any]] = [{"style": style.name} for style in untrained(spec)]
        learned = None
        if steps:
            learner = Learner(pool, steps, seed, settings.learner, known)
            snapshots, learned = learner.run(parts / LEARNER, progress), learner.recording
            behaviours = [snapshot.behaviour for snapshot in snapshots]
            origins = [{"step": snapshot.step} for snapshot in snapshots]
        recorder = Recorder(
            pool,
            behaviours,
            episodes,
            seed=seed,
            limits=known,
            share=settings.share,
            highest_penalty=settings.learner.highest_penalty,
            settings=settings.recorder,
            region=region,
            front=settings.front,
            learned=learned,
        )
        recording = recorder.run(parts, progress)
        info = pool.info
    candidates = _episodes(recording, info, spec.name, recipe["observation_bits"])
    wanted = known or default_limits(candidates)
    kept = thin(
        candidates.total_costs,
        candidates.returns,
        episodes,
        limits=wanted,
        cells=settings.cells,
        share=settings.share,
        seed=seed,
        region=region,
        front=settings.front,
    )
    metadata = _metadata(spec, info, recipe, origins, [recording.orders[n].behaviour for n in kept])
    claim.check(look=True)
    write_hdf5(replace(candidates.select(kept), metadata=metadata), path, compact=recipe["compact"])


def _check(steps: int, episodes: int, seed: int, limits: Sequence[float] | None, observation_bits: int) -> None:
    if not 1 <= observation_bits <= FLOAT_BITS:
        raise TracrlError(f"--observation-bits is {observation_bits}; expected 1 to {FLOAT_BITS}.")
    checked("--steps", steps, Annotated[int, Range(1, 10**12)])
    checked("--episodes", episodes, EpisodeCount)
    checked("--seed", seed, Seed)
    if limits is not None and not all(0 <= limit < math.inf for limit in limits):
        raise TracrlError(f"--limits are {', '.join(map(str, limits))}; expected finite numbers of 0 or more.")


def _file_name(spec: EnvSpec) -> str:
    return spec.name.rpartition(":")[2].replace("/", "-")


def _has_drivers(spec: EnvSpec) -> bool:
    return spec.is_task and get_task(spec.name).suite == "MetaDrive"


def untrained(env: str | EnvSpec) -> Sequence[Driver | Practised]:
    """Behaviours that need no learning, where there are such."""
    spec = EnvSpec.of(env)
    if _has_drivers(spec):
        return DRIVERS
    return (practised(spec.name),) if spec.is_task and has_practised(spec.name) else ()


def default_settings(env: str | EnvSpec) -> CollectSettings:
    """How an environment's data are collected where nothing else is asked for.

    Who drives does nothing at random: a random action is half the time a brake, the strongest thing there is.

    Nor does who has practised, whose care is to be seen in all that is done. An ant on a circle learns slowly: so in
    longer steps, and for the next 10 s, which are as many steps as one looks ahead that runs. What it has become is
    recorded alone, with much care or with hardly any: with some care, it is safe by luck.
    """
    spec = EnvSpec.of(env)
    if _has_drivers(spec):
        return CollectSettings(recorder=RecorderSettings(with_random_actions=0.0))
    if spec.is_task and has_practised(spec.name):
        steady = RecorderSettings(candidates=1.0, blind_rounds=16, with_random_actions=0.0, changing=0.0)
        return CollectSettings(recorder=steady)
    if spec.is_task and spec.name == "AntCircle":
        learner = LearnerSettings(snapshots=(1.0,), recorded=0.0, ppo=PPOSettings(sight=0.2, divergence=0.03))
        either = RecorderSettings(
            candidates=1.0, blind_rounds=16, halfhearted=(0.3, 0.8), changing=0.0, most_noise=1.0,
            with_random_actions=0.0,
        )  # fmt: skip
        return CollectSettings(learner, either)
    return CollectSettings()


def _within_reach(spec: EnvSpec) -> EnvSpec:
    """With as much of the action box as its behaviours use."""
    return replace(spec, reach=reach_of(spec.name)) if spec.is_task and has_practised(spec.name) else spec


def _limits(spec: EnvSpec, limits: Sequence[float] | None) -> tuple[float, ...]:
    if limits is not None:
        return tuple(float(limit) for limit in limits)
    return get_task(spec.name).limits if spec.is_task else ()


def _region(spec: EnvSpec) -> Region:
    """Where DSRL's data of a task lie, and room for episodes that are unsafe at its highest limit."""
    if not spec.is_task:
        return EVERYWHERE
    task = get_task(spec.name)
    return Region(max(task.max_cost, 2 * max(task.limits)), task.min_return)


def _recipe(
    spec: EnvSpec,
    steps: int,
    episodes: int,
    seed: int,
    limits: Sequence[float] | None,
    compact: bool,
    observation_bits: int,
    settings: CollectSettings,
) -> dict[str, Any]:
    """All that was chosen, as plain values: the same recipe means the same collection."""
    given = {
        "environment": spec.to_dict(),
        "steps": 0 if untrained(spec) else steps,
        "episodes": episodes,
        "seed": seed,
        "limits": None if limits is None else [float(limit) for limit in limits],
        "compact": compact,
        "observation_bits": observation_bits,
        "settings": _named(asdict(settings)),
    }
    return json.loads(json.dumps(given))


def _named(settings: dict[str, Any]) -> dict[str, Any]:
    """Without what is not asked for, as in collections from before one could ask for it."""
    return {
        name: _named(value) if isinstance(value, dict) else value
        for name, value in settings.items()
        if value is not None
    }


def _open(path: Path, parts: Path, recipe: dict[str, Any], resume: bool) -> bool:
    """Make sure that what lies here is nothing, or the same collection; True if that is already finished."""
    if path.exists():
        if not resume:
            raise TracrlError(f"{path} exists: choose another --out, or remove it.")
        _compare(read_hdf5(path).metadata.get("recipe"), recipe, path)
        return True
    # A recipe alone is what is left of a collection that failed at once.
    if parts.exists() and any(parts.glob("*.safetensors")):
        if not resume:
            raise TracrlError(f"{parts} holds a collection that can go on: go on with --resume, or remove it.")
        _compare(read_json(parts / RECIPE), recipe, parts)
    return False


def _compare(there: Any, here: dict[str, Any], where: Path) -> None:
    if not isinstance(there, dict):
        raise TracrlError(f"{where} was not made by tracrl collect: choose another --out, or remove it.")
    for key, value in here.items():
        if there.get(key) != value:
            said = "" if isinstance(value, dict) else f" ({there.get(key)} there, {value} here)"
            raise TracrlError(f"{where} holds another collection, whose {key} differs{said}: choose another --out.")


def _episodes(recording: Recording, info: EnvInfo, name: str, observation_bits: int) -> Episodes:
    """The candidates as a data set, with the actions that were carried out."""
    rollouts = recording.rollouts
    ends = np.cumsum([len(rollout) for rollout in rollouts]) - 1
    terminals, timeouts = np.zeros(ends[-1] + 1, bool), np.zeros(ends[-1] + 1, bool)
    terminated = np.array([rollout.terminated for rollout in rollouts])
    terminals[ends], timeouts[ends] = terminated, ~terminated
    drawn = np.concatenate([rollout.actions for rollout in rollouts])
    return Episodes.from_arrays(
        {
            "observations": rounded(np.concatenate([r.observations[:-1] for r in rollouts]), observation_bits),
            "actions": to_box(drawn, info.action_low, info.action_high),
            "rewards": np.concatenate([rollout.rewards for rollout in rollouts]),
            "costs": np.concatenate([rollout.costs for rollout in rollouts]),
            "terminals": terminals,
            "timeouts": timeouts,
            "final_observations": rounded(np.stack([r.observations[-1] for r in rollouts]), observation_bits),
        },
        where=name,
        action_low=info.action_low,
        action_high=info.action_high,
    )


def rounded(numbers: NDArray[np.float32], bits: int) -> NDArray[np.float32]:
    """The nearest numbers of so many significant bits; what is left of the others are zeros, which pack well."""
    if bits == FLOAT_BITS:
        return numbers
    fraction, exponent = np.frexp(numbers)
    return np.ldexp(np.rint(np.ldexp(fraction, bits)), exponent - bits).astype(np.float32)


def _metadata(
    spec: EnvSpec, info: EnvInfo, recipe: dict[str, Any], origins: Sequence[dict[str, Any]], used: Sequence[int]
) -> dict[str, Any]:
    """Everything that made the file."""
    return {
        **({"task": spec.name} if spec.is_task else {}),
        "environment": spec.name,
        "made_by": _command(spec, recipe),
        "recipe": recipe,
        "behaviours": [{**origin, "episodes": used.count(number)} for number, origin in enumerate(origins)],
        "versions": {**info.versions, "torch": torch.__version__},
        "note": NOTE,
    }


def _command(spec: EnvSpec, recipe: dict[str, Any]) -> str:
    """What to type for the same file."""
    named = [spec.name] if spec.is_task else ["--env", spec.name]
    counts = [f"--{key}={recipe[key]}" for key in ("steps", "episodes", "seed") if key != "steps" or recipe[key]]
    words = ["tracrl", "collect", *named, *counts]
    words += [f"--cost-key={spec.cost_key}"] if spec.cost_key != "cost" else []
    words += [f"--max-steps={spec.max_steps}"] if spec.max_steps is not None else []
    words += ["--limits", *(f"{limit:g}" for limit in recipe["limits"])] if recipe["limits"] is not None else []
    words += ["--compact"] if recipe["compact"] else []
    bits = recipe["observation_bits"]
    words += [f"--observation-bits={bits}"] if bits != FLOAT_BITS else []
    changed = recipe["settings"] != json.loads(json.dumps(_named(asdict(default_settings(spec)))))
    return shlex.join(words) + f" (version {tracrl.__version__}{', with settings of its own' if changed else ''})"
