from __future__ import annotations

import pytest

from tracrl.errors import TracrlError
from tracrl.methods.registry import METHODS, get_method


def test_all_eight_are_there() -> None:
    assert set(METHODS) == {"trac", "bc-all", "bc-safe", "cdt", "bcq-lag", "bear-lag", "cpq", "coptidice"}
    for name, method in METHODS.items():
        assert method.name == name
        assert method.paper
        assert method.optimises
        assert method.metrics[0] == "loss"
        assert get_method(name) is method


@pytest.mark.parametrize("suite", ["Bullet", "SafetyGymnasium", "MetaDrive"])
def test_presets_are_settings(suite: str) -> None:
    for method in METHODS.values():
        assert method.preset(suite, "fast").updates <= method.preset(suite).updates / 10


@pytest.mark.parametrize(("typed", "meant"), [("bcq_lag", "bcq-lag"), ("COptiDICE", "coptidice"), ("bear", "bear-lag")])
def test_a_near_name_is_suggested(typed: str, meant: str) -> None:
    with pytest.raises(TracrlError, match=f"did you mean {meant}"):
        get_method(typed)


def test_a_far_name_is_answered_with_all() -> None:
    with pytest.raises(TracrlError, match="there are trac, bc-all"):
        get_method("xyz")
