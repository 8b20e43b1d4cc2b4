"""One log as other tools write it, Minari's own collector among them: the same episodes each time, and each trains."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tracrl.data.episodes import Episodes
from tracrl.data.sources import import_episodes
from tracrl.methods.trac import TraC
from tracrl.policies.base import Policy
from tracrl.train.fit import fit

sys.path.append(str(Path(__file__).parents[1] / "examples"))
from reactor import Reactor

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
minari = pytest.importorskip("minari")
pytest.importorskip("pyarrow.parquet")
pytest.importorskip("pyarrow.csv")

SMALL = TraC(updates=20, clone_updates=10, batch_size=8, hidden=(8, 8), warmup=2)
MINUTES = 30


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What was seen while Minari's collector recorded it."""
    patch = pytest.MonkeyPatch()
    patch.setenv("MINARI_DATASETS_PATH", str(tmp_path_factory.mktemp("minari")))
    env = minari.DataCollector(Reactor("si", MINUTES), record_infos=True)
    generator = np.random.default_rng(0)
    seen = []
    for episode in range(30):
        observation, _ = env.reset(seed=episode)
        wanted, over, step = generator.uniform(-1, 3), False, 0
        while not over:
            action = np.clip(generator.normal(wanted, 0.3, 1), -1, 1).astype(np.float32)
            before = observation
            observation, reward, terminated, over, info = env.step(action)
            row = {"episode": f"run {episode}", "step": step, "act": float(action[0]), "reward": reward}
            row |= {f"obs_{i}": value for i, value in enumerate(before.tolist())}
            row |= {f"next_obs_{i}": value for i, value in enumerate(observation.tolist())}
            seen.append({**row, "cost": info["cost"], "terminated": terminated, "truncated": over})
            step += 1
    env.create_dataset("reactor/test-v0")
    yield seen
    patch.undo()


@pytest.fixture(scope="module")
def expected(rows: list[dict[str, Any]]) -> tuple[Episodes, Policy]:
    episodes = Episodes.from_minari("reactor/test-v0")
    assert len(episodes) == 30
    assert 0 < (episodes.total_costs > 5).sum() < 30
    return episodes, fit(SMALL, episodes, limits=[5.0]).policy


def by_csv(rows: list[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


FILES: dict[str, tuple[str, Callable[[list[dict[str, Any]], Path], Any]]] = {
    "csv by Python": ("log.csv", by_csv),
    "csv by pandas": ("log.csv", lambda rows, path: pd.DataFrame(rows).to_csv(path, index=False)),
    "csv by pandas, packed, with its index": ("log.csv.gz", lambda rows, path: pd.DataFrame(rows).to_csv(path)),
    "csv by polars": ("log.csv", lambda rows, path: pl.DataFrame(rows).write_csv(path)),
    "csv by Arrow": ("log.csv", lambda rows, path: pa.csv.write_csv(pa.Table.from_pylist(rows), path)),
    "Parquet by pandas": ("log.parquet", lambda rows, path: pd.DataFrame(rows).to_parquet(path)),
    "Parquet by polars": ("log.parquet", lambda rows, path: pl.DataFrame(rows).write_parquet(path)),
    "Parquet by Arrow": ("log.pq", lambda rows, path: pa.parquet.write_table(pa.Table.from_pylist(rows), path)),
    "Arrow by polars": ("log.arrow", lambda rows, path: pl.DataFrame(rows).write_ipc(path)),
    "Feather by pandas": ("log.feather", lambda rows, path: pd.DataFrame(rows).to_feather(path)),
}
FRAMES: dict[str, Callable[[list[dict[str, Any]]], Any]] = {
    "pandas": pd.DataFrame,
    "pandas with Arrow's types": lambda rows: pd.DataFrame(rows).convert_dtypes(dtype_backend="pyarrow"),
    "polars": pl.DataFrame,
    "Arrow": pa.Table.from_pylist,
}


def trains_alike(episodes: Episodes, expected: tuple[Episodes, Policy]) -> None:
    assert episodes.fingerprint == expected[0].fingerprint
    policy = fit(SMALL, episodes, limits=[5.0]).policy
    assert all(np.array_equal(policy.tensors[name], tensor) for name, tensor in expected[1].tensors.items())


@pytest.mark.parametrize("kind", FILES)
def test_files(kind: str, rows: list[dict[str, Any]], expected: tuple[Episodes, Policy], tmp_path: Path) -> None:
    name, write = FILES[kind]
    write(rows, tmp_path / name)
    trains_alike(import_episodes([tmp_path / name])[0], expected)


@pytest.mark.parametrize("kind", FRAMES)
def test_frames(kind: str, rows: list[dict[str, Any]], expected: tuple[Episodes, Policy]) -> None:
    trains_alike(Episodes.from_frame(FRAMES[kind](rows)), expected)


def test_what_we_write_ourselves(expected: tuple[Episodes, Policy], tmp_path: Path) -> None:
    expected[0].save(tmp_path / "my.hdf5")
    trains_alike(import_episodes([tmp_path / "my.hdf5"])[0], expected)
    trains_alike(import_episodes(["minari:reactor/test-v0"])[0], expected)
