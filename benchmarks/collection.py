"""Where the time of a collection goes: playing, the policy's update, and the critic's beside it.

    python -m benchmarks.collection PointGoal1 PointButton1 CarPush1 AntCircle --workers 8
    PYTHONPATH=OTHER_CHECKOUT python benchmarks/collection.py PointGoal1        # an older version, for comparison

Times are of the processor, so other work on the machine disturbs them little. A round lasts as long as the process
with the most episodes plays, and then the update in the main thread, for which the processes wait.
"""

from __future__ import annotations

import argparse
import math
import os
import time

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from tracrl.collect.learner import LearnerSettings
from tracrl.collect.ppo import PPO, PPOSettings
from tracrl.collect.rollout import Order
from tracrl.envs.environment import Environment, EnvSpec
from tracrl.tasks.table import get_task


def measure(task: str, workers: int, turns: int) -> None:
    env, limits = Environment(EnvSpec(task)), get_task(task).limits
    info, longest = env.info, float(env.info.max_steps or 1000)
    ppo = PPO(
        info.observation_size, info.action_size, PPOSettings(), 0, longest=longest, tolerated=float(np.median(limits))
    )
    first = [Order(0, seed, 0.5).play(env, ppo.behaviour()) for seed in range(2)]
    ppo.seen.update(np.concatenate([rollout.observations for rollout in first]))
    settings = LearnerSettings()
    episodes = max(settings.fewest_episodes, math.ceil(settings.most_steps / np.mean([len(r) for r in first])))
    penalties = [float(p) for p in np.linspace(0, settings.highest_penalty, episodes)]
    played, waiting, update, steps = [], [], [], 0
    for turn in range(turns):
        behaviour, began = ppo.behaviour(), time.process_time()
        rollouts = [Order(0, 100 * turn + i, p).play(env, behaviour) for i, p in enumerate(penalties)]
        played.append(time.process_time() - began)
        began, began_here = time.process_time(), time.thread_time()
        ppo.update(rollouts, penalties, 1.0, np.random.default_rng(turn))
        waiting.append(time.thread_time() - began_here)
        getattr(ppo, "finish", lambda: None)()  # versions up to 0.6.0 do all of it in the main thread
        update.append(time.process_time() - began)
        steps += sum(len(rollout) for rollout in rollouts)
        ppo.seen.update(np.concatenate([rollout.observations for rollout in rollouts]))
    play, wait, whole = (float(np.mean(times)) for times in (played, waiting, update))
    together = play / episodes * math.ceil(episodes / workers) + wait
    rate = steps / turns / together
    print(
        f"{task}: a round of {episodes} episodes, {steps // turns:,} steps: playing {play:.2f} s "
        f"({play * turns / steps * 1e6:.0f} us a step), update {whole:.2f} s, the processes wait {wait:.2f} s; "
        f"with {workers} processes {together:.2f} s a round, {rate:,.0f} steps/s",
        flush=True,
    )
    env.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="+")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    for task in options.tasks:
        measure(task, options.workers, options.turns)


if __name__ == "__main__":
    main()
