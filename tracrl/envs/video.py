"""Record an episode as a video, with the running return and cost on the picture."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import matplotlib
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tracrl.envs.environment import Environment, EnvSpec
from tracrl.envs.play import Actor, actor_seed_of, play
from tracrl.errors import TracrlError
from tracrl.files import replacing
from tracrl.tasks.table import Task

FRAMES_A_SECOND = 30
MOST_FRAMES = 350  # a long episode is shown faster
STRIP = 26  # pixels for the writing


class Recorded(NamedTuple):
    """What the recorded episode scored."""

    episode_return: float
    episode_cost: float
    steps: int


def record_video(
    env: str | Task | EnvSpec | gymnasium.Env[Any, Any],
    act: Actor | Callable[[Any], Any],
    path: str | Path,
    seed: int = 0,
    every: int | None = None,
    progress: Callable[[int, int | None], None] | None = None,
) -> Recorded:
    """Play one episode and write it as .mp4 or .gif.

    ``env`` names an environment, or is one that was made with ``render_mode="rgb_array"``; ``act`` is a policy or a
    function from observation to action. Every ``every``-th step becomes a picture; without it every one, thinned to a
    video of about ten seconds where the episode is long. ``progress`` is told the steps so far, and the most there are.
    """
    path = Path(path)
    _check(path)
    if isinstance(env, gymnasium.Env):
        if env.render_mode != "rgb_array":
            raise TracrlError(
                f'A video needs an environment made with render_mode="rgb_array", not {env.render_mode!r}.'
            )
        name = getattr(getattr(env.unwrapped, "task", None), "name", "")
        made = Environment(EnvSpec(name or type(env.unwrapped).__name__), env=env)
    else:
        spec = EnvSpec.of(env.name if isinstance(env, Task) else env)
        name = spec.name
        made = Environment(spec, render_mode="rgb_array")
    try:
        shots = _film(made, act, seed, every, progress)
    finally:
        if made.env is not env:
            made.close()
    before = [shots[0], *shots[:-1]]
    pictures = [
        write_on(shot.picture, name, shot.score, costly=shot.score.episode_cost > last.score.episode_cost)
        for last, shot in zip(before, shots, strict=True)
    ]
    with replacing(path) as aside:
        _WRITERS[path.suffix](aside, pictures)
    return shots[-1].score


def _check(path: Path) -> None:
    if path.suffix not in _WRITERS:
        raise TracrlError(f"A video's name must end in {' or '.join(_WRITERS)}, found {path.name!r}.")
    if path.suffix == ".mp4" and importlib.util.find_spec("imageio_ffmpeg") is None:
        raise TracrlError("An .mp4 needs imageio-ffmpeg: pip install imageio-ffmpeg, or write a .gif instead.")


class _Shot(NamedTuple):
    picture: NDArray[np.uint8]
    score: Recorded


class _Filmed:
    """The actor, a policy or a function alone, and the picture of where it begins."""

    def __init__(self, env: Environment, actor: Actor | Callable[[Any], Any]):
        self.env, self.actor = env, actor
        self.act: Callable[[Any], Any] = actor if callable(actor) else actor.act

    def reset(self, seed: int) -> None:
        if hasattr(self.actor, "reset"):
            self.actor.reset(seed)
        self.beginning = _render(self.env)

    def observe(self, reward: float, cost: float) -> None:
        if hasattr(self.actor, "observe"):
            self.actor.observe(reward, cost)


def _film(
    env: Environment,
    act: Actor | Callable[[Any], Any],
    seed: int,
    every: int | None,
    progress: Callable[[int, int | None], None] | None,
) -> list[_Shot]:
    filmed = _Filmed(env, act)
    score, stride = Recorded(0.0, 0.0, 0), every or 1
    shots: list[_Shot] = []
    for step in play(env, filmed, seed, actor_seed_of(seed)):
        if not shots:
            shots.append(_Shot(filmed.beginning, score))
        score = Recorded(score.episode_return + step.reward, score.episode_cost + step.cost, score.steps + 1)
        if step.terminated or step.truncated or score.steps % stride == 0:
            shots.append(_Shot(_render(env), score))
        if every is None and len(shots) > MOST_FRAMES:
            shots, stride = shots[::2], stride * 2
        if progress is not None:
            progress(score.steps, env.info.max_steps)
    return shots


def _render(env: Environment) -> NDArray[np.uint8]:
    picture: Any = env.env.render()
    if not isinstance(picture, np.ndarray) or picture.ndim != 3 or picture.shape[2] != 3:
        raise TracrlError(f"{env.spec.name}: render() gave no picture of height × width × 3.")
    return np.asarray(picture, dtype=np.uint8)


def write_on(picture: NDArray[np.uint8], name: str, score: Recorded, costly: bool) -> NDArray[np.uint8]:
    """The picture with a strip of writing, red where it is ``costly``."""
    image = Image.fromarray(picture)
    draw = ImageDraw.Draw(image, "RGBA")
    draw.rectangle([0, 0, image.width, STRIP], fill=(170, 20, 20, 230) if costly else (20, 24, 30, 200))
    numbers = f"return {score.episode_return:.2f}  cost {score.episode_cost:.2f}"
    font = _font()
    draw.text((8, STRIP / 2), f"{name}  step {score.steps}", fill="white", font=font, anchor="lm")
    draw.text((image.width - 8, STRIP / 2), numbers, fill="white", font=font, anchor="rm")
    return np.asarray(image, dtype=np.uint8)


@functools.cache
def _font() -> ImageFont.FreeTypeFont:
    # Matplotlib carries it, so it is the same everywhere.
    return ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts/ttf/DejaVuSansMono.ttf", 13)


def _write_mp4(path: Path, pictures: Sequence[NDArray[np.uint8]]) -> None:
    height, width = pictures[0].shape[:2]
    film = importlib.import_module("imageio_ffmpeg").write_frames(
        str(path),
        (width, height),
        fps=FRAMES_A_SECOND,
        quality=7,
        macro_block_size=2,  # what H.264 needs; the default of 16 would stretch the picture
        ffmpeg_log_level="error",
        output_params=["-f", "mp4"],
    )
    film.send(None)
    try:
        for picture in pictures:
            film.send(np.ascontiguousarray(picture))
    finally:
        film.close()


def _write_gif(path: Path, pictures: Sequence[NDArray[np.uint8]]) -> None:
    first, *others = [Image.fromarray(picture).quantize(64, dither=Image.Dither.NONE) for picture in pictures]
    first.save(path, "GIF", save_all=True, append_images=others, duration=1000 // FRAMES_A_SECOND, loop=0)


_WRITERS: dict[str, Callable[[Path, Sequence[NDArray[np.uint8]]], None]] = {".mp4": _write_mp4, ".gif": _write_gif}
