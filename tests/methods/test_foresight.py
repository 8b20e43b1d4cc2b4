"""What is foreseen of a limit is what training then says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.data.made_up import episodes_of
from tracrl.data.episodes import Episodes
from tracrl.data.locate import load_dataset
from tracrl.errors import TracrlError
from tracrl.methods.foresight import Refusal, foresee
from tracrl.methods.trac import TraC
from tracrl.tasks.table import all_tasks
from tracrl.train.fit import fit


def heaps(*costs: tuple[int, float]) -> Episodes:
    """So many episodes of four steps at so much each."""
    steps = [[cost / 4] * 4 for count, cost in costs for _ in range(count)]
    return episodes_of([[float(i)] * 4 for i in range(len(steps))], steps)


def foreseen(data: Episodes, limit: float) -> str:
    (finding,) = foresee(data, [limit])
    assert finding.warning
    return finding.text


def test_nothing_is_said_where_nothing_is_wrong() -> None:
    assert list(foresee(heaps((100, 0), (100, 20)), [10])) == []
    assert list(foresee(load_dataset("BallRun"), [10, 20, 40])) == []


def test_no_safe_episode() -> None:
    data = heaps((3, 8), (200, 20))
    text = foreseen(data, 4)
    assert text == (
        "limit 4 would be refused: No episode is safe at cost limit 4: the lowest cost in the data is 8; raise the "
        "limit or add safe episodes. With --limits 20 it would not: 96 episodes cost no more. BC-Safe would refuse it "
        "too; the other methods would begin, with nothing safe to learn from."
    )
    with pytest.raises(TracrlError) as caught:
        fit(TraC(updates=1, clone_updates=1), data, limits=[4])
    assert str(caught.value) in text


def test_no_safe_episode_but_safe_segments() -> None:
    steps = [[8.0, 0, 0, 0], [0, 0, 0, 8.0]] * 20
    data = episodes_of([[1.0] * 4] * 40, steps)
    text = foreseen(data, 4)
    assert "With --ratio 0.5 it would not: " in text
    fit(TraC(updates=1, clone_updates=1, ratio=0.5), data, limits=[4])


def test_nothing_unsafe() -> None:
    data = heaps((100, 0), (100, 20))
    text = foreseen(data, 30)
    assert text.startswith("limit 30 would be refused: Every episode is safe at cost limit 30")
    assert text.endswith("With --x 50 --y 50 it would not.")
    fit(TraC(updates=1, clone_updates=1, x=50, y=50), data, limits=[30])
    assert foreseen(heaps((1, 0)), 30).endswith("No setting mends that.")


@pytest.mark.parametrize(("safe", "more"), [(40, ""), (3, ", and what is learnt from so few need not hold elsewhere")])
def test_few_safe_episodes_are_a_warning_and_train(safe: int, more: str) -> None:
    data = heaps((safe, 0), (100, 20))
    assert foreseen(data, 10) == (
        f"only {safe} episodes are safe at limit 10, fewer than a batch (96; fast preset 16): each is drawn several "
        f"times for a batch{more}."
    )
    with pytest.warns(UserWarning, match=f"Only {safe} segments are safe at cost limit 10, fewer than a batch of 96"):
        fit(TraC(updates=1, clone_updates=1), data, limits=[10])


def test_the_settings_are_those_of_the_suite() -> None:
    task = next(task for task in all_tasks().values() if task.suite == "MetaDrive")  # segments of a quarter
    steps = [[0.0] * 8, [1.0] * 8] * 150
    data = replace(episodes_of([[float(i)] * 8 for i in range(300)], steps), metadata={"task": task.name})
    assert foreseen(data, 100).endswith("With --x 50 --y 50 it would not.")
    assert list(foresee(data, [4])) == []
    costly = replace(data, costs=data.costs + 1)
    assert "No segment is safe at cost limit 1, of which 2 steps may spend 0.25" in foreseen(costly, 1)


def test_little_to_avoid() -> None:
    assert foreseen(heaps((100, 0), (2, 20)), 10).startswith("only 2 episodes are undesirable at limit 10: there is")


def test_each_limit_has_its_own_say() -> None:
    found = list(foresee(heaps((100, 1), (100, 20)), [0, 4, 100]))
    assert [finding.limit for finding in found if isinstance(finding, Refusal)] == [0, 100]
