"""Evaluating nine policies: ours against one environment after another, the policy called one state at a time.

    python -m benchmarks.evaluation BallCircle --episodes 20
    python -m benchmarks.evaluation PointGoal1 --episodes 2

The peer is what people run today: a torch network asked for one state at a time, in one environment, as the simulator
comes. The two take turns, and the policies and the number of episodes are the same.
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch
from torch import nn

from benchmarks.simulators import before_mends
from tracrl.evaluation.evaluate import Evaluator
from tracrl.policies.base import PolicyMetadata
from tracrl.policies.mlp import MLPPolicy
from tracrl.tasks.table import get_task

POLICIES = 9


def stack(observation: int, action: int) -> MLPPolicy:
    generator = np.random.default_rng(0)
    sizes = (observation, 256, 256, action)
    tensors = {}
    for i in range(3):
        shape = (POLICIES, sizes[i], sizes[i + 1])
        tensors[f"weight{i}"] = (generator.normal(size=shape) / sizes[i] ** 0.5).astype(np.float32)
        tensors[f"bias{i}"] = np.zeros((POLICIES, 1, sizes[i + 1]), np.float32)
    facts = PolicyMetadata("trac", (10.0,) * POLICIES, tuple(range(POLICIES)), (-1.0,) * action, (1.0,) * action)
    return MLPPolicy(facts, tensors)


def network(policy: MLPPolicy, index: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i in range(3):
        weight, bias = policy.tensors[f"weight{i}"][index], policy.tensors[f"bias{i}"][index, 0]
        layer = nn.Linear(*weight.shape)
        layer.weight.data, layer.bias.data = torch.from_numpy(weight.T.copy()), torch.from_numpy(bias)
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1], nn.Tanh())


@torch.no_grad()
def one_after_another(env: object, policy: MLPPolicy, episodes: int) -> int:
    steps = 0
    for index in range(POLICIES):
        net = network(policy, index)
        for episode in range(episodes):
            observation, _ = env.reset(seed=episode)  # type: ignore[attr-defined]
            over = False
            while not over:
                state = torch.as_tensor(observation, dtype=torch.float32)[None]
                observation, _, terminated, truncated, _ = env.step(net(state)[0].numpy())  # type: ignore[attr-defined]
                steps += 1
                over = terminated or truncated
    return steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    task = get_task(options.task)
    policy = stack(task.observation_size, task.action_size)
    env = before_mends(task)
    seconds: dict[str, list[float]] = {"one after another": [], "tracrl": []}
    with Evaluator(task.name, episodes=options.episodes) as evaluator:
        evaluator.evaluate(policy[[0]])  # starts the processes
        for _ in range(options.turns):
            began = time.perf_counter()
            steps = one_after_another(env, policy, options.episodes)
            seconds["one after another"].append(time.perf_counter() - began)
            began = time.perf_counter()
            ours = int(evaluator.evaluate(policy).lengths.sum())
            seconds["tracrl"].append((time.perf_counter() - began) * steps / ours)  # for the same number of steps
    env.close()
    workers = evaluator.pool.workers
    print(f"{task.name}: {POLICIES} policies x {options.episodes} episodes, {steps} steps, {workers} processes")
    plain = statistics.median(seconds["one after another"])
    for name, values in seconds.items():
        middle = statistics.median(values)
        print(
            f"  {name:<20}{middle:8.2f} s {plain / middle:6.2f}x   (spread {(max(values) - min(values)) / middle:.0%})"
        )


if __name__ == "__main__":
    main()
