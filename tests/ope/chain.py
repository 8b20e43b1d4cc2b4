"""A chain of five places with exact values: a step to the right earns, the last place costs and may end the episode."""

from __future__ import annotations

import numpy as np

from tracrl.data.episodes import Episodes
from tracrl.policies.base import PolicyMetadata
from tracrl.policies.mlp import MLPPolicy

PLACES, STEPS, SLIP, END = 5, 8, 0.2, 0.1


def chain_log(episodes: int, seed: int = 0) -> Episodes:
    """Logged by a policy that goes either way with the same probability."""
    generator = np.random.default_rng(seed)
    rows: dict[str, list] = {k: [] for k in ("observations", "actions", "rewards", "costs", "terminals", "timeouts")}
    finals = []
    for _ in range(episodes):
        place = 0
        for step in range(STEPS):
            action = generator.choice([-1.0, 1.0])
            rows["observations"].append(np.eye(PLACES)[place])
            rows["actions"].append([action])
            rows["rewards"].append(reward_of(place, action))
            rows["costs"].append(float(place == PLACES - 1))
            ended = place == PLACES - 1 and generator.random() < END
            place = moved(place, action if generator.random() > SLIP else -action)
            rows["terminals"].append(ended)
            rows["timeouts"].append(step == STEPS - 1 and not ended)
            if ended:
                break
        finals.append(np.eye(PLACES)[place])
    return Episodes.from_arrays({**{k: np.array(v) for k, v in rows.items()}, "final_observations": np.array(finals)})


def reward_of(place: int, action: float) -> float:
    return 0.5 * place * (action > 0)


def moved(place: int, direction: float) -> int:
    return int(np.clip(place + np.sign(direction), 0, PLACES - 1))


def chain_policy(rightwards: list[list[bool]]) -> MLPPolicy:
    """A stack: in each place, each policy goes right or left."""
    weight = np.where(np.array(rightwards), 5.0, -5.0).astype(np.float32)[:, :, None]
    count = len(rightwards)
    metadata = PolicyMetadata("bc-all", (2.0,) * count, tuple(range(count)), (-1.0,), (1.0,))
    return MLPPolicy(metadata, {"weight0": weight, "bias0": np.zeros((count, 1, 1), np.float32)})


def exact(rightwards: list[bool]) -> tuple[float, float]:
    """Return and cost from the first place, by backward induction."""
    value = np.zeros((PLACES, 2))
    for _ in range(STEPS):
        before = np.zeros_like(value)
        for place, right in enumerate(rightwards):
            action = 1.0 if right else -1.0
            on = 1 - END * (place == PLACES - 1)
            later = (1 - SLIP) * value[moved(place, action)] + SLIP * value[moved(place, -action)]
            before[place] = [reward_of(place, action), float(place == PLACES - 1)] + on * later
        value = before
    return float(value[0, 0]), float(value[0, 1])
