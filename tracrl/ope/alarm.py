"""The out-of-data alarm: how often policies do what no logged step was like, on logged states and where they go."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.table import Table

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.files import read_json, write_json
from tracrl.ope.log import STANDARD_RANGE, Log, check_policy
from tracrl.ope.support import ood_shares, ood_shares_there
from tracrl.policies.base import Policy

ROWS = 2_000
"""steps of each policy among which some are looked at"""
FAR = 0.1
"""a share of steps out of the data from which estimates mean little"""


@dataclass(frozen=True)
class OutOfData:
    """For each policy of a stack the share of its steps that no logged step was like; up to 0.02 is usual."""

    limits: tuple[float, ...]
    seeds: tuple[int, ...]
    logged: tuple[float, ...]
    """in the states of the log"""
    played: tuple[float, ...] | None
    """along its own episodes; None where none were played"""
    policies: tuple[str, ...]
    """fingerprints"""
    data: str
    """fingerprint"""

    def save(self, path: str | Path) -> None:
        write_json(Path(path), asdict(self))

    @classmethod
    def load(cls, path: str | Path) -> OutOfData:
        value = read_json(Path(path))
        try:
            given: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in value.items()}
            found = cls(**given)
            numbers = [*found.limits, *found.seeds, *found.logged, *(found.played or found.logged)]
            if len(numbers) != 4 * len(found.policies) or not all(isinstance(n, int | float) for n in numbers):
                raise ValueError("its lists differ in length")
        except (AttributeError, TypeError, ValueError) as error:
            raise TracrlError(f"{path} was not written by tracrl, or was edited ({error!r}).") from error
        return found

    def table(self, title: str) -> Table:
        table = Table(title=title, title_justify="left", caption_justify="left")
        table.caption = (
            "share of steps where no logged state is near, or where the action is far from every logged one nearby; "
            "up to 2% is usual; in logged states that a policy never gets to, it may do what nobody did there"
        )
        for column in ("limit", "seed", "in logged states", *([] if self.played is None else ["where it goes"])):
            table.add_column(column, justify="right")
        for i, (limit, seed) in enumerate(zip(self.limits, self.seeds, strict=True)):
            shares = [self.logged[i], *([] if self.played is None else [self.played[i]])]
            style = "red" if self.played is not None and self.played[i] >= FAR else None
            table.add_row(f"{limit:g}", str(seed), *(f"{share:.0%}" for share in shares), style=style)
        return table


def out_of_data(policy: Policy, data: Episodes, played: Sequence[NDArray[Any]] | None = None) -> OutOfData:
    """``played``: for each policy rows of an observation and the action that followed, in the units of the data."""
    check_policy(policy, data)
    log = Log.of(data, torch.device("cpu"))
    where = None
    if played is not None:
        size, low = data.observation_size, data.action_low.astype(np.float64)
        half = np.maximum((data.action_high.astype(np.float64) - low) / 2, 1e-30)
        some = [rows[np.linspace(0, len(rows) - 1, ROWS).astype(np.int64)] for rows in played]
        steps = [_steps(rows[:, :size], (rows[:, size:] - low) / half - 1, log) for rows in some]
        where = tuple(map(float, ood_shares(torch.stack(steps), log)))
    return OutOfData(
        policy.metadata.limits,
        policy.metadata.seeds,
        in_logged_states(policy, log),
        where,
        policy.fingerprints(),
        data.fingerprint,
    )


def in_logged_states(policy: Policy, log: Log) -> tuple[float, ...]:
    """Of each policy, asked in states of the log; one with a memory as if each were an episode's first."""
    rows = np.unique(np.linspace(0, len(log.step) - 1, ROWS).astype(np.int64))
    states = log.observations[torch.from_numpy(rows).to(log.observations.device)].cpu().numpy()
    policy.reset(0)
    actions = policy.act_scaled(policy.seen(states))
    policy.reset(0)
    there = _steps(states, actions[0], log)[:, : log.states.shape[1]]
    given = torch.from_numpy(np.asarray(actions, np.float32)).to(log.states.device)
    return tuple(map(float, ood_shares_there(there, given, log)))


def _steps(observations: NDArray[Any], actions: NDArray[Any], log: Log) -> torch.Tensor:
    """As the log has them: standardised, and scaled."""
    mean, std = log.mean.double().cpu().numpy(), log.std.double().cpu().numpy()
    states = np.clip((observations - mean) / std, -STANDARD_RANGE, STANDARD_RANGE)
    return torch.from_numpy(np.concatenate([states, actions], axis=1).astype(np.float32)).to(log.states.device)
