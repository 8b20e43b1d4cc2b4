"""The simulators measured: speed before and after our mends, and step by step against the original versions.

    python -m benchmarks.simulators speed [TASK...]
    python -m benchmarks.simulators vector [TASK...]
    python -m benchmarks.simulators compare SIMULATOR=PYTHON... [TASK...]

``compare`` takes the interpreter of an environment of its own that holds the original of a simulator; how to
make one, and what came out, is in docs/simulators.md. ``reference`` is what it runs there, which is why nothing
of this package is imported above.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import inspect
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

SEEDS = (0, 1, 2)
SECONDS = 1.2  # of playing, for each speed


def action_at(step: int, size: int, seed: int) -> Any:
    """Float32 numbers, as a policy gives them, in the float64 that all versions compute with."""
    return np.sin(0.3 * step + 1.7 * np.arange(size) + 1.0 + seed).astype(np.float32).astype(float)


def drive(observation: Any, step: int) -> Any:
    """Keep to the lane of a MetaDrive road."""
    steering = 8 * (float(observation[2]) - 0.5) + 4 * (float(observation[8]) - 0.5)
    return np.clip([steering, 0.3 + 0.3 * np.sin(0.1 * step)], -1, 1).astype(np.float32).astype(float)


def seek(observation: Any) -> Any:
    """Steer a Point to its goal by the goal's lidar, so that goals are reached and drawn anew."""
    angle = 2 * np.pi * (int(np.argmax(observation[12:28])) + 0.5) / 16
    turn = (angle + np.pi) % (2 * np.pi) - np.pi
    return np.clip([np.cos(angle), turn], -1, 1).astype(np.float32).astype(float)


# ---------------------------------------------------------------------------------------------------------------
# The originals, as their users run them; each episode is (observations, actions, rewards, costs).


def original_bullet(task: str, seed: int) -> tuple[list, list, list, list]:
    import bullet_safety_gym  # noqa: F401
    import gymnasium

    env = gymnasium.make(f"Safety{task}-v0")
    np.random.seed(seed)  # noqa: NPY002
    observation, _ = env.reset()
    observations, actions, rewards, costs, over = [observation], [], [], [], False
    while not over:
        actions.append(action_at(len(actions), env.action_space.shape[0], seed))
        observation, reward, terminated, truncated, info = env.step(actions[-1])
        observations.append(observation)
        rewards.append(reward)
        costs.append(info["cost"])
        over = terminated or truncated
    env.close()
    return observations, actions, rewards, costs


def original_safety_gymnasium(task: str, seed: int) -> tuple[list, list, list, list]:
    # Python 3.11 refuses its dataclasses with arrays as defaults; this alone is mended.
    original = dataclasses.dataclass

    def dataclass(cls: type | None = None, **options: Any) -> Any:
        if cls is None:
            return lambda cls: dataclass(cls, **options)
        for name in inspect.get_annotations(cls):
            if isinstance(cls.__dict__.get(name), np.ndarray):
                value = cls.__dict__[name]
                setattr(cls, name, dataclasses.field(default_factory=lambda value=value: value))
        return original(cls, **options)

    dataclasses.dataclass = dataclass
    try:
        import safety_gymnasium

        env = safety_gymnasium.make(f"Safety{task}-{'v1' if task.endswith('Velocity') else 'v0'}")
    finally:
        dataclasses.dataclass = original
    env.reset(seed=99)  # its first world differs from all later ones in the last bits
    observation, _ = env.reset(seed=seed)
    observations, actions, rewards, costs, over = [observation], [], [], [], False
    while not over:
        swing = action_at(len(actions), env.action_space.shape[0], seed)
        actions.append(seek(observation) if task.startswith("PointGoal") else swing)
        observation, reward, cost, terminated, truncated, _ = env.step(actions[-1])
        observations.append(observation)
        rewards.append(reward)
        costs.append(cost)
        over = terminated or truncated
    env.close()
    return observations, actions, rewards, costs


def original_metadrive(task: str, seed: int) -> tuple[list, list, list, list]:
    from metadrive.envs import SafeMetaDriveEnv
    from metadrive.utils import get_np_random

    road = next(road for road in ("easy", "medium", "hard") if task.startswith(road))
    start_seed, blocks = {"easy": (0, "SCS"), "medium": (100, "XST"), "hard": (200, "TRO")}[road]
    env = SafeMetaDriveEnv(
        {
            "start_seed": start_seed,
            "traffic_density": {"sparse": 0.1, "mean": 0.15, "dense": 0.2}[task[len(road) :]],
            "map": 3,
            "map_config": {"type": "block_sequence", "config": blocks},
            "accident_prob": 0.0,
            "environment_num": 1,
            "horizon": 1000,
            "crash_vehicle_penalty": 0.0,
            "random_traffic": True,
            "traffic_mode": "hybrid",
        }
    )
    env.lazy_init()
    env.engine.traffic_manager.np_random = get_np_random(seed)  # there is no other way to seed the traffic
    observation = env.reset()
    observations, actions, rewards, costs, over = [observation], [], [], [], False
    while not over and len(actions) < 1000:
        actions.append(drive(observation, len(actions)))
        observation, reward, _, info = env.step(actions[-1])
        observations.append(observation)
        rewards.append(reward)
        speed = max(0, 1e-2 * (info["velocity"] - 10.0))
        costs.append(info["cost"] + speed + 1e-2 * max(0, 0.1 - float(np.min(observation[-240:]))) ** 2)
        over = info["arrive_dest"] or info["crash"] or info["out_of_road"]
    env.close()
    return observations, actions, rewards, costs


ORIGINALS = {
    "bullet": original_bullet,
    "safety-gymnasium": original_safety_gymnasium,
    "metadrive": original_metadrive,
}


def reference(simulator: str, out: str, tasks: list[str]) -> None:
    """Play the originals and save their episodes."""
    arrays: dict[str, Any] = {}
    for task in tasks:
        for seed in SEEDS:
            names = ("observations", "actions", "rewards", "costs")
            for name, values in zip(names, ORIGINALS[simulator](task, seed), strict=True):
                arrays[f"{task}/{seed}/{name}"] = np.array(values)
        print(f"  original {task}", file=sys.stderr, flush=True)
    np.savez(out, **arrays)


# ---------------------------------------------------------------------------------------------------------------
# Ours against them


def compare(arguments: list[str]) -> None:
    from tracrl.envs.make import make_env
    from tracrl.envs.simulators import SIMULATORS
    from tracrl.tasks.table import all_tasks

    print("| task | steps | observations equal | rewards equal | costs equal | largest difference | return | cost |")
    print("|---|---:|---:|---:|---:|---:|---|---|")
    wanted = [name for name in arguments if "=" not in name] or list(all_tasks())
    for simulator, _, python in (pair.partition("=") for pair in arguments if "=" in pair):
        suite = SIMULATORS[simulator].suite
        tasks = [task for task in all_tasks().values() if task.suite == suite and task.name in wanted]
        with tempfile.TemporaryDirectory() as folder:
            out = str(Path(folder) / "reference.npz")
            command = [python, "-W", "ignore", __file__, "reference", simulator, out, *(task.name for task in tasks)]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            saved = dict(np.load(out))
        for task in tasks:
            env = make_env(task)
            count = np.zeros(4, int)  # steps, and how many of them are equal in each respect
            largest, sums = 0.0, np.zeros((2, 2))
            for seed in SEEDS:
                observations, actions, rewards, costs = (
                    saved[f"{task.name}/{seed}/{name}"] for name in ("observations", "actions", "rewards", "costs")
                )
                observation, _ = env.reset(seed=seed)
                largest = max(largest, float(np.abs(observation - observations[0].astype(np.float32)).max()))
                for step, action in enumerate(actions):
                    observation, reward, terminated, truncated, info = env.step(action)
                    expected = observations[step + 1].astype(np.float32)
                    equal = np.array_equal(observation, expected)
                    count += [1, equal, reward == rewards[step], info["cost"] == costs[step]]
                    largest = max(largest, float(np.abs(observation - expected).max()))
                    sums += [[reward, rewards[step]], [info["cost"], costs[step]]]
                    if terminated or truncated:
                        break
                count[0] += len(actions) - step - 1  # steps that ours did not reach count as unequal
            env.close()
            steps, *equal = count
            shares = " | ".join("all" if part == steps else f"{part / steps:.1%}" for part in equal)
            (ours, theirs), (our_cost, their_cost) = sums / len(SEEDS)
            returns = f"{ours:.4f}" if ours == theirs else f"{ours:.4f} against {theirs:.4f}"
            cost = f"{our_cost:.4f}" if our_cost == their_cost else f"{our_cost:.4f} against {their_cost:.4f}"
            print(f"| {task.name} | {steps} | {shares} | {largest:.1e} | {returns} | {cost} |", flush=True)


# ---------------------------------------------------------------------------------------------------------------
# Speed


def before_mends(task: Any) -> Any:
    """The task without the mends that concern speed, as far as it runs at all beside the others."""
    from tracrl.envs.make import make_env

    if task.suite == "Bullet":
        import gymnasium

        make_env(task).close()  # registers it
        return gymnasium.make(f"Safety{task.name}-v0", disable_env_checker=True)
    if task.suite == "SafetyGymnasium":
        import gymnasium
        import yaml

        from tracrl.envs import safety_gymnasium

        if not task.name.endswith("Velocity"):
            safety_gymnasium.speed_up = lambda _: None
            safety_gymnasium.Observed = gymnasium.spaces.Dict
            safety_gymnasium.import_part("safety_gymnasium.builder")
            safety_gymnasium.import_part("safety_gymnasium.world").yaml = yaml
            generator = safety_gymnasium.import_part("safety_gymnasium.utils.random_generator")
            again = importlib.util.module_from_spec(generator.__spec__)
            generator.__spec__.loader.exec_module(again)
            generator.RandomGenerator.sample_layout = again.RandomGenerator.sample_layout
        return make_env(task)
    from tracrl.envs import metadrive

    ours = metadrive.settings
    metadrive.settings = lambda name: ours(name) | {"force_destroy": False}
    metadrive.speed_up = lambda _: None
    return make_env(task)


def measure(env: Any, seconds: float, on_road: bool = False) -> tuple[float, float]:
    """Milliseconds of a reset, and steps a second without resets, of random play; on a road, of one who keeps to it.

    (At random nobody gets to where the traffic is.) Both in seconds of the processor, which one process uses fully:
    others on the machine then matter less.
    """
    random = np.random.default_rng(0)
    size = env.action_space.shape[0]
    resets, steps, resetting = 0, 0, 0.0
    env.reset(seed=0)
    start = time.process_time()
    while time.process_time() - start < seconds or resets < 2:
        before = time.process_time()
        observation, _ = env.reset(seed=resets)
        resetting += time.process_time() - before
        resets += 1
        over, step = False, 0
        while not over and (resets < 2 or time.process_time() - start < seconds):
            action = drive(observation, step) if on_road else random.uniform(-1, 1, size)
            observation, _, *ends, _ = env.step(action)
            over, steps, step = any(ends), steps + 1, step + 1
    return 1000 * resetting / resets, steps / (time.process_time() - start - resetting)


def speed_of(task_name: str, when: str) -> None:
    """One measurement in this process; printed for the one that asked."""
    from tracrl.envs.make import make_env
    from tracrl.tasks.table import get_task

    task = get_task(task_name)
    env = before_mends(task) if when == "before" else make_env(task)
    reset, stepping = measure(env, SECONDS, task.suite == "MetaDrive")
    # Of episodes of full length, which random play may not have.
    whole = task.max_steps / (reset / 1000 + task.max_steps / stepping)
    env.close()
    print("RESULT", reset, stepping, whole)


def speed(tasks: list[str]) -> None:
    from tracrl.tasks.table import all_tasks

    about()
    print(
        "| task | reset, ms: before | after | steps/s without resets: before | after | full episodes: before | after |"
    )
    print("|---|---:|---:|---:|---:|---:|---:|")
    for task in tasks or all_tasks():
        found = {}
        for when in ("before", "after"):
            command = [sys.executable, "-W", "ignore", __file__, "speed-of", task, when]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT"))
            found[when] = [float(number) for number in line.split()[1:]]
        columns = [f"{found[when][at]:,.{int(at == 0)}f}" for at in range(3) for when in ("before", "after")]
        print(f"| {task} | {' | '.join(columns)} |", flush=True)


def vector(tasks: list[str]) -> None:
    """Steps a second of random play over worker processes, resets included."""
    from tracrl.envs.make import make_vec_env

    about()
    counts = (1, 2, 4)
    print(f"| task | {' | '.join(f'{count} workers' for count in counts)} |")
    print("|---|" + "---:|" * len(counts))
    for task in tasks or ["BallRun", "CarCircle", "PointGoal1", "CarButton1", "HalfCheetahVelocity", "easymean"]:
        rates = []
        for count in counts:
            env = make_vec_env(task, count)
            env.reset(seed=0)
            env.action_space.seed(0)
            steps, start = 0, time.perf_counter()
            while time.perf_counter() - start < 2 * SECONDS:
                env.step(env.action_space.sample())
                steps += count
            rates.append(steps / (time.perf_counter() - start))
            env.close()
        print(f"| {task} | {' | '.join(f'{rate:,.0f}' for rate in rates)} |", flush=True)


def about() -> None:
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    load = os.getloadavg()[0]
    print(f"{model}, {os.cpu_count()} cores, load {load:.1f} at the start, Python {platform.python_version()}\n")


if __name__ == "__main__":
    what, *arguments = sys.argv[1:] or ["help"]
    if what == "reference":
        reference(arguments[0], arguments[1], arguments[2:])
    elif what == "compare" and arguments:
        compare(arguments)
    elif what == "speed-of":
        speed_of(*arguments)
    elif what == "speed":
        speed(arguments)
    elif what == "vector":
        vector(arguments)
    else:
        print(__doc__)
