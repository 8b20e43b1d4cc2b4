"""Exported policies in onnxruntime against the policies themselves."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tracrl
from tests.conftest import make_small_data
from tests.deploy.made_up import made_up_estimates, untrained_run
from tracrl.cli import main
from tracrl.deploy.kinds import EXPORTERS, MLPExporter
from tracrl.errors import TracrlError
from tracrl.methods.bcq_lag import BCQLag
from tracrl.methods.bear_lag import BEARLag
from tracrl.methods.cdt import CDT
from tracrl.methods.cpq import CPQ
from tracrl.methods.method import Compute, Method, RunSpec
from tracrl.policies.any_limit import AnyLimitPolicy, AnyXPolicy, RemainingBudgetPolicy
from tracrl.policies.base import KINDS, Floats, Policy, PolicyMetadata
from tracrl.policies.mlp import MLPPolicy

STATES = np.random.default_rng(3).normal(size=(500, 3)).astype(np.float32)
RUNS = [RunSpec(2.0, 0), RunSpec(6.0, 1)]
METHODS: list[Method] = [
    CPQ(hidden=(16, 16), vae_hidden=(8,), batch_size=8),
    BCQLag(hidden=(16, 16), vae_hidden=(8,), batch_size=8, candidates=7, critics=2),
    BEARLag(hidden=(16, 16), vae_hidden=(8,), batch_size=8, candidates=5, critics=4),
]


def trained(method: Method) -> Policy:
    learner = method.learner(make_small_data(), RUNS, Compute())
    for _ in range(3):
        learner.update()
    return learner.policy()


def mlp(low: tuple[float, ...] = (-1.0, -1.0), high: tuple[float, ...] = (1.0, 1.0), **metadata: Any) -> MLPPolicy:
    generator = np.random.default_rng(0)
    sizes = [(3, 32), (32, 32), (32, 2)]
    tensors = {f"weight{i}": generator.normal(size=(1, *s)).astype(np.float32) for i, s in enumerate(sizes)}
    tensors |= {f"bias{i}": generator.normal(size=(1, 1, s[1])).astype(np.float32) for i, s in enumerate(sizes)}
    return MLPPolicy(PolicyMetadata("trac", (10.0,), (0,), low, high, **metadata), tensors)


def act(path: Path, states: Floats, **more: Floats) -> Floats:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["action"], {"observation": states, **more})[0]


def properties(path: Path) -> dict[str, str]:
    return {entry.key: entry.value for entry in onnx.load(path).metadata_props}


def test_every_kind_is_exported_or_refused() -> None:
    importlib.import_module("tracrl.policies.load")  # which knows all kinds
    ours = {kind for kind, policy in KINDS.items() if policy.__module__.startswith("tracrl.")}
    assert ours - set(EXPORTERS) == {"transformer", "switching"}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_actions_are_the_policys(method: Method, tmp_path: Path) -> None:
    stack = trained(method)
    for i in range(len(stack)):
        policy, path = stack[i], tmp_path / f"{i}.onnx"
        assert tracrl.export(policy, path, states=STATES) <= 1e-5
        policy.reset(11)
        expected, more = policy.act(STATES), {}
        if not isinstance(policy, MLPPolicy):
            inputs = {value.name: value for value in onnx.load(path).graph.input}
            shape = [size.dim_value for size in inputs["noise"].type.tensor_type.shape.dim][1:]
            noise = np.random.default_rng(11).standard_normal((len(STATES), *shape), np.float32)
            more = {"noise": noise}
        found = act(path, STATES, **more)
        assert np.mean(np.abs(found - expected).max(axis=1) <= 1e-5) >= 0.99
        one = act(path, STATES[:1], **{name: value[:1] for name, value in more.items()})
        np.testing.assert_allclose(one, found[:1], atol=1e-6)


@pytest.mark.parametrize(
    ("mean", "scale", "low", "high"),
    [
        ((350.0, 101_325.0, 0.0), (10.0, 2_000.0, 1e-6), (-1.0, -1.0), (1.0, 1.0)),
        ((0.0, 0.0, 0.0), (1e-6, 1e-6, 1e-6), (0.0, -5.0), (100.0, 3.0)),
        ((), (), (1e5, 0.0), (1e5 + 1, 1e-3)),
    ],
)
def test_units_and_action_boxes_are_inside(
    mean: tuple[float, ...], scale: tuple[float, ...], low: tuple[float, ...], high: tuple[float, ...], tmp_path: Path
) -> None:
    policy = mlp(low, high, observation_mean=mean, observation_scale=scale)
    states = (STATES * np.array(scale or 1.0) + np.array(mean or 0.0)).astype(np.float32)
    tracrl.export(policy, tmp_path / "policy.onnx", states=states)
    found, expected = act(tmp_path / "policy.onnx", states), policy.act(states)[0]
    half = (np.array(high) - np.array(low)) / 2
    assert (np.abs(found - expected) <= 1e-5 * half + 3 * np.spacing(np.float32(np.abs(high)))).all()
    assert (found >= np.float32(low)).all()
    assert (found <= np.float32(high)).all()


def any_limit(lowest: float = 0.7, highest: float = 40.0, unit: float = 2.0) -> AnyLimitPolicy:
    generator = np.random.default_rng(0)
    tensors = {
        f"weight{i}": generator.normal(size=(2, *s)).astype(np.float32) for i, s in enumerate([(4, 16), (16, 2)])
    }
    tensors |= {f"bias{i}": generator.normal(size=(2, 1, s)).astype(np.float32) for i, s in enumerate([16, 2])}
    for tensor in tensors.values():
        tensor[1] = tensor[0]  # one network at two limits
    metadata = PolicyMetadata(
        "trac-any", (10.0, 20.0), (0, 0), (-1.0, -1.0), (1.0, 1.0), None, (1.0, 2.0, 3.0), (2.0, 1.0, 1.0), 1.0, unit
    )
    return AnyLimitPolicy(metadata, tensors, lowest=lowest, highest=highest)


def test_a_policy_for_every_limit_is_told_it(tmp_path: Path) -> None:
    policy, path = any_limit(), tmp_path / "policy.onnx"
    assert tracrl.export(policy[0], path, states=STATES) <= 1e-5
    lowest, highest = policy.limit_range
    for limit in (lowest, 1.5, 20.0, highest):
        given = np.full((len(STATES), 1), limit, np.float32)
        expected = policy[0].act(STATES, limit=max(float(np.float32(limit)), lowest))
        np.testing.assert_allclose(act(path, STATES, cost_limit=given), expected, atol=1e-5)
    given = np.full((len(STATES), 1), 2 * highest, np.float32)
    with pytest.warns(match="above those"):
        expected = policy[0].act(STATES, limit=2 * highest)
    np.testing.assert_allclose(act(path, STATES, cost_limit=given), expected, atol=1e-5)
    for limit in (lowest / 2, -1.0, np.nan):
        assert np.isnan(act(path, STATES, cost_limit=np.full_like(given, limit))).all(), (
            "it has not learnt to keep to it"
        )
    known = properties(path)
    assert json.loads(known["limit_range"]) == [lowest, highest]
    assert "limit" not in known
    row = np.ones((2, 1, 16), np.float32)
    tensors = {**policy.tensors, "weight0": np.insert(policy.tensors["weight0"], [3], row, axis=1)}
    told_x = AnyXPolicy(policy.metadata, tensors, lowest=0.7, highest=40.0, largest_x=50.0, least_x=5.0)
    tracrl.export(told_x[0], path, states=STATES)
    given = np.full((len(STATES), 1), 20.0, np.float32)
    careful = told_x[0].at_x(50).act(STATES, limit=20.0)
    np.testing.assert_allclose(act(path, STATES, cost_limit=given), careful, atol=1e-5)
    tracrl.export(policy[0].at(20.0), path)
    np.testing.assert_allclose(act(path, STATES), policy[0].act(STATES, limit=20.0), atol=1e-5)
    assert properties(path)["limit"] == "20.0"


def test_a_policy_that_is_told_what_is_left(tmp_path: Path) -> None:
    plain, path = any_limit(), tmp_path / "policy.onnx"
    policy = RemainingBudgetPolicy(plain.metadata, plain.tensors, **plain.settings())[0]
    assert tracrl.export(policy, path, states=STATES) <= 1e-5
    policy.reset(0)
    for cost in (0.0, 4.0, 3.0, 9.0):  # 10 in all, then above it
        policy.observe(0.0, cost)
        left = np.full((len(STATES), 1), policy._left[0, 0] * policy.metadata.cost_unit, np.float32)
        np.testing.assert_allclose(act(path, STATES, budget_left=left), policy.act(STATES), atol=1e-5)
    assert np.isnan(act(path, STATES, budget_left=np.full_like(left, np.nan))).all()
    assert "which the caller counts" in properties(path)["inputs"]


def test_the_command_exports_it_whole_or_at_one_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, path = tmp_path / "policy.safetensors", tmp_path / "policy.onnx"
    any_limit().save(file)
    assert main(["export", str(file), "--out", str(path)]) == 0
    assert "it takes cost_limit (batch, 1)" in capsys.readouterr().out
    assert "limit_range" in properties(path)
    assert main(["export", str(file), "--out", str(path), "--limit", "15"]) == 0
    assert properties(path)["limit"] == "15.0"
    assert main(["export", str(file), "--out", str(path), "--limit", "0.1"]) == 1
    assert "below those that this policy was trained for" in capsys.readouterr().err


@pytest.mark.parametrize("strange", [np.nan, np.inf, -np.inf])
def test_no_action_follows_from_what_is_no_number(strange: float, tmp_path: Path) -> None:
    tracrl.export(mlp(), tmp_path / "policy.onnx")
    states = STATES[:3].copy()
    states[1, 2] = strange
    found = act(tmp_path / "policy.onnx", states)
    assert np.isnan(found[1]).all()
    assert np.isfinite(found[[0, 2]]).all()


def test_what_is_refused_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.onnx"
    with pytest.raises(TracrlError, match="stack of 2 policies"):
        tracrl.export(trained(METHODS[0]), path)
    with pytest.raises(TracrlError, match=r"ends in \.onnx"):
        tracrl.export(mlp(), tmp_path / "policy.pt")
    with pytest.raises(TracrlError, match="keeps account of what"):
        tracrl.export(trained(CDT(batch_size=2, width=8, layers=1, heads=2))[0], path)
    with pytest.raises(TracrlError, match=r"expected \(n, 3\)"):
        tracrl.export(mlp(), path, states=STATES[:, :2])

    class Strange(MLPPolicy):
        kind = "strange-to-export"

    monkeypatch.delitem(KINDS, "strange-to-export")
    with pytest.raises(TracrlError, match="'strange-to-export' cannot be exported"):
        tracrl.export(Strange(mlp().metadata, mlp().tensors), path)
    with monkeypatch.context() as wrong:
        wrong.setattr(
            MLPExporter,
            "scaled_action",
            lambda self, graph, seen: graph.node("Slice", seen, graph.shape(0), graph.shape(2), graph.shape(1)),
        )
        with pytest.raises(TracrlError, match="acts otherwise than the policy itself"):
            tracrl.export(mlp(), path)
    for package in ("onnx", "onnxruntime"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            with pytest.raises(TracrlError, match=rf"needs {package}, .*pip install 'tracrl\[onnx\]'"):
                tracrl.export(mlp(), path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return untrained_run(tmp_path / "run")


def test_the_command_says_what_is_known(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "policy.onnx"
    assert main(["export", str(run), "--out", str(path)]) == 1
    assert "holds 2 such policies: name one of --limit 2 --seed 0; --limit 6 --seed 0." in capsys.readouterr().err
    assert main(["export", str(run), "--out", str(path), "--limit", "3"]) == 1
    assert "none of this limit and seed" in capsys.readouterr().err
    assert not path.exists()
    assert main(["export", str(run), "--out", str(path), "--limit", "6"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not shown to be safe" in said
    assert "Warning: All 2 policies give the same action" in said
    known = properties(path)
    assert known["limit"] == "6.0"
    assert known["seed"] == "0"
    assert known["method"] == "bc-all"
    assert known["tracrl_version"] == tracrl.__version__
    assert known["data_fingerprint"] == json.loads((run / "config.json").read_text())["data"]["fingerprint"]
    assert "not shown to be safe" in known["safety"]
    assert "same action" in json.loads(known["warnings"])[0]
    assert json.loads(known["estimates"]) == []


def test_estimates_go_with_the_policy_they_are_of(run: Path, tmp_path: Path) -> None:
    policy, path = tracrl.load_policy(run), tmp_path / "policy.onnx"
    estimates = made_up_estimates(policy)
    estimates.save(run / "estimates.json")
    assert main(["export", str(run), "--out", str(path), "--limit", "2"]) == 0
    known = properties(path)
    assert json.loads(known["estimates"])[0]["cost"] == 1.0
    assert known["safety"].startswith("Estimated from the log alone: Passed for a limit of 2.")
    assert "90% confidence" in known["safety"]
    assert "Assumed: " in known["safety"]
    assert main(["export", str(run), "--out", str(path), "--limit", "6"]) == 0
    assert "Not shown for a limit of 6." in properties(path)["safety"]
    replace(estimates, policies=("another", "one")).save(run / "estimates.json")
    assert main(["export", str(run), "--out", str(path), "--limit", "2"]) == 0
    assert "not shown to be safe" in properties(path)["safety"]
