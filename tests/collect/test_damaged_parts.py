from __future__ import annotations

from pathlib import Path

import pytest
from test_collect import RECIPE

from tracrl.collect import collect
from tracrl.collect.progress import Coverage, Silence
from tracrl.errors import TracrlError


class StopAfterTwoRounds(Silence):
    rounds = 0

    def recording(self, done: int, candidates: int, coverage: Coverage | None) -> None:
        self.rounds += coverage is not None
        if self.rounds == 2:
            raise KeyboardInterrupt


def test_a_flipped_bit_in_a_part_is_said_and_the_part_can_be_made_anew(tmp_path: Path) -> None:
    options = {**RECIPE, "steps": 400, "episodes": 10, "workers": 1, "out": tmp_path / "road.hdf5"}
    with pytest.raises(KeyboardInterrupt):
        collect("tiny_envs:Road", progress=StopAfterTwoRounds(), **options)
    parts = tmp_path / "road.hdf5.part"
    for name in ("learner.safetensors", "round00.safetensors"):
        whole = (parts / name).read_bytes()
        (parts / name).write_bytes(whole[:-9] + bytes([whole[-9] ^ 4]) + whole[-8:])
        with pytest.raises(
            TracrlError, match=rf"{name} is not a whole checkpoint \(its checksum does not hold.*remove"
        ):
            collect("tiny_envs:Road", resume=True, **options)
        assert not options["out"].exists()
        (parts / name).unlink()
    assert collect("tiny_envs:Road", resume=True, **options) == options["out"]
