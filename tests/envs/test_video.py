from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.envs.playing import action_at, play
from tracrl.envs import video
from tracrl.envs.make import make_env
from tracrl.envs.play import actor_seed_of
from tracrl.envs.video import Recorded, record_video, write_on
from tracrl.errors import TracrlError


class Recorder:
    """An actor like the package's policies; keeps what it was told."""

    def __init__(self, size: int) -> None:
        self.size, self.step, self.told = size, 0, []

    def reset(self, seed: int) -> None:
        self.step = 0
        self.told = [("seed", seed)]

    def act(self, observation: Any) -> Any:
        self.step += 1
        return action_at(self.step - 1, self.size)

    def observe(self, reward: float, cost: float) -> None:
        self.told.append((reward, cost))


def test_a_gif_holds_the_episode_of_the_seed(tmp_path: Path) -> None:
    actor = Recorder(3)
    scored = record_video("HopperVelocity", actor, tmp_path / "new" / "hopper.gif", seed=3)
    expected = play(make_env("HopperVelocity"), 3, 1000)
    assert scored.steps == len(expected.rewards)
    assert scored.episode_return == pytest.approx(expected.rewards.sum())
    assert scored.episode_cost == expected.costs.sum()
    assert actor.told[0] == ("seed", actor_seed_of(3))
    assert [reward for reward, _ in actor.told[1:]] == expected.rewards.tolist()
    with Image.open(tmp_path / "new" / "hopper.gif") as film:
        assert film.size == (480, 360)
        assert film.n_frames == scored.steps + 1
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["hopper.gif"]


@pytest.mark.skipif(importlib.util.find_spec("imageio_ffmpeg") is None, reason="imageio-ffmpeg is not installed")
def test_an_mp4_can_be_read_back(tmp_path: Path) -> None:
    import imageio_ffmpeg

    path = tmp_path / "hopper.mp4"
    scored = record_video("HopperVelocity", lambda _: np.zeros(3), path, seed=3, every=10)
    frames = imageio_ffmpeg.read_frames(str(path))
    assert next(frames)["size"] == (480, 360)
    assert len(list(frames)) == 1 + -(-scored.steps // 10)


def test_a_long_episode_is_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "MOST_FRAMES", 12)
    env = make_env("easysparse", render_mode="rgb_array")
    steps = 0

    def brake_and_leave(_: Any) -> Any:
        nonlocal steps
        steps += 1
        return np.array([0.0, -1.0]) if steps < 40 else np.array([1.0, 1.0])

    scored = record_video(env, brake_and_leave, tmp_path / "road.gif")
    assert scored.steps > 40
    with Image.open(tmp_path / "road.gif") as film:
        assert film.n_frames <= 13
    env.reset(seed=0)  # an environment that was handed in stays open
    env.close()


def test_the_strip_is_red_where_it_costs() -> None:
    empty = np.zeros((360, 480, 3), np.uint8)
    calm = write_on(empty, "BallRun", Recorded(1.0, 0.0, 5), costly=False)
    costly = write_on(empty, "BallRun", Recorded(1.0, 1.0, 5), costly=True)
    assert costly[2, 240, 0] > 100 > calm[2, 240, 0]
    assert (calm[:26] == 255).all(axis=-1).sum() > 100, "no writing"
    assert not calm[26 + 1 :].any()


def test_what_cannot_be_written_is_said_before_the_episode_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(video, "Environment", lambda *_, **__: pytest.fail("it was played"))
    with pytest.raises(TracrlError, match=r"must end in .mp4 or .gif, found 'out.avi'"):
        record_video("BallRun", lambda _: np.zeros(2), tmp_path / "out.avi")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(TracrlError, match="pip install imageio-ffmpeg"):
        record_video("BallRun", lambda _: np.zeros(2), tmp_path / "out.mp4")


def test_a_failed_episode_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(TracrlError, match="finite numbers"):
        record_video("BallRun", lambda _: np.full(2, np.nan), tmp_path / "out.gif")
    assert list(tmp_path.iterdir()) == []


def test_an_environment_without_pictures_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TracrlError, match="render_mode"):
        record_video(make_env("BallRun"), lambda _: np.zeros(2), tmp_path / "out.gif")
