"""The tables of one policy for every limit by hand; the benchmark itself is run by hand."""

from __future__ import annotations

from benchmarks.any_limit import VARIANTS
from benchmarks.any_limit_tables import TOLD_X, Chosen, chosen_cell, gain
from tracrl.methods.trac_any import TO_CALIBRATE, TraCAny


def chosen(reward: float, cost: float) -> Chosen:
    return Chosen(limit=10, inner=12, x=25, shown=True, reward=reward, cost=cost)


def test_a_gain_counts_tasks_alike_and_every_policy() -> None:
    one, other = [chosen(0.5, 0.0), chosen(0.7, 1.0)], [chosen(0.2, 1.1)]
    assert chosen_cell(one) == "0.600 / 0.50"
    assert chosen_cell([*one, *other]) == "0.467 / 0.70 (2)"
    # The mean of 0.6 and 0.2, whatever the number of policies, is a quarter more than 0.32.
    assert gain([one, other], 0.32) == "0.400 (+25.0%), 2 of 3 safe"


def test_what_calibration_trains_is_a_variant_that_was_measured() -> None:
    assert TO_CALIBRATE in [VARIANTS[name] for name in TOLD_X]
    for changes in list(VARIANTS.values())[1:]:
        TraCAny.preset("Bullet", "fast", **changes)
