from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.methods.method import Method, Preset
from tracrl.methods.registry import METHODS, current_settings, get_method, metadata_of, original_settings
from tracrl.tasks.table import get_task
from tracrl.train.finished import read_metadata
from tracrl.train.fit import fit


def test_the_papers_eight_and_the_newer_ones_are_there() -> None:
    eight = {"trac", "bc-all", "bc-safe", "cdt", "bcq-lag", "bear-lag", "cpq", "coptidice"}
    assert set(METHODS) == eight | {"caps", "carl", "trac-any"}
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


@pytest.mark.parametrize(
    ("task", "preset", "standardised"),
    [
        ("PointCircle1", "fast", True),
        ("easymean", "fast", True),
        ("PointCircle1", "full", False),
        ("AntVelocity", "fast", False),
        ("CarCircle", "fast", False),
    ],
)
def test_short_trainings_standardise_where_columns_are_of_many_kinds(
    task: str, preset: Preset, standardised: bool
) -> None:
    for method in METHODS.values():
        chosen = method.preset(get_task(task).suite, preset)
        assert chosen.standardised(get_task(task), chosen.updates) is standardised
        assert chosen.standardised(None, chosen.updates), "own data are"


@pytest.mark.parametrize(("typed", "meant"), [("bcq_lag", "bcq-lag"), ("COptiDICE", "coptidice"), ("bear", "bear-lag")])
def test_a_near_name_is_suggested(typed: str, meant: str) -> None:
    with pytest.raises(TracrlError, match=f"did you mean {meant}"):
        get_method(typed)


def test_a_far_name_is_answered_with_all() -> None:
    with pytest.raises(TracrlError, match="there are trac, bc-all"):
        get_method("xyz")


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_settings_of_version_0_4_are_read_under_their_new_names(method: type[Method]) -> None:
    now = asdict(method())
    before = original_settings(method, now)
    assert len(before) == len(now)
    assert set(before) - set(now) == set(method.renamed)
    assert current_settings(method, before) == now


def test_a_config_of_version_0_4_says_enough() -> None:
    config = {"method": "trac", "settings": original_settings(METHODS["trac"], asdict(METHODS["trac"]()))}
    assert config["settings"]["clone_rate"] == 1e-4  # type: ignore[index]
    assert metadata_of(config).phase_ends == (30_000,)
    assert metadata_of({"method": "cdt", "settings": {}}).depends_on_limit is False


def test_a_run_that_version_0_4_began_goes_on(small_data: Episodes, tmp_path: Path) -> None:
    method = METHODS["trac"](updates=6, clone_updates=2, batch_size=4, hidden=(8,))  # type: ignore[call-arg]
    fit(method, small_data, limits=[4.0], out=tmp_path / "run", standardise="off")
    (tmp_path / "run" / "policy.safetensors").unlink()
    file = tmp_path / "run" / "config.json"
    config = json.loads(file.read_text())
    identity = config["identity"]
    config["settings"] = original_settings(METHODS["trac"], config["settings"])
    del config["method_metadata"]
    file.write_text(json.dumps(config))
    fit(method, small_data, limits=[4.0], out=tmp_path / "run", resume=True)
    metadata = read_metadata(tmp_path / "run")
    assert (metadata.identity, metadata.phase_ends) == (identity, (2,))
    assert metadata.settings["bc_lr"] == 1e-4
    with pytest.raises(TracrlError, match=r"settings differ in lr \(1e-05 there, 0.1 here\)"):
        fit(replace(method, lr=0.1), small_data, limits=[4.0], out=tmp_path / "run", resume=True)  # type: ignore[call-arg]
