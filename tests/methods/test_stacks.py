"""What every baseline keeps: a run in a stack is the run alone, and training goes on from its tensors exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import make_small_data
from tracrl.methods.bc import BCSafe
from tracrl.methods.bcq_lag import BCQLag
from tracrl.methods.bear_lag import BEARLag
from tracrl.methods.caps import CAPS
from tracrl.methods.carl import CARL
from tracrl.methods.cdt import CDT
from tracrl.methods.coptidice import COptiDICE
from tracrl.methods.cpq import CPQ
from tracrl.methods.method import Compute, Learner, Method, RunSpec
from tracrl.policies.load import load_policy

CPU = torch.device("cpu")
NETS: dict[str, Any] = {"batch_size": 16, "hidden": (8, 8)}
METHODS: list[Method] = [
    CDT(batch_size=4, context=3, width=8, layers=2, heads=2, dropout=0.1, warmup=1, lr=1e-3),
    BCQLag(**NETS, vae_hidden=(8,), candidates=3),
    BEARLag(**NETS, vae_hidden=(8,), candidates=3, mmd_samples=3),
    CPQ(**NETS, vae_hidden=(8,), ood_actions=3),
    CPQ(**NETS, vae_hidden=(8,), reference_quirks=True),
    COptiDICE(**NETS),
    COptiDICE(**NETS, reference_quirks=True),
    CAPS(**NETS, heads=3),
    CARL(**NETS),
]
RUNS = [RunSpec(2.0, 3), RunSpec(6.0, 3), RunSpec(2.0, 4)]


def label(method: Method) -> str:
    return method.name + "-quirks" * getattr(method, "reference_quirks", False)


each_method = pytest.mark.parametrize("method", METHODS, ids=label)


def updated(learner: Learner, times: int) -> Learner:
    for _ in range(times):
        learner.update()
    return learner


@each_method
def test_runs_of_a_stack_are_runs_alone(method: Method) -> None:
    data = make_small_data()
    together = updated(method.learner(data, RUNS, Compute()), 4).state_dict()
    for i, run in enumerate(RUNS):
        alone = updated(method.learner(data, [run], Compute()), 4).state_dict()
        assert together.keys() == alone.keys()
        for name, tensor in together.items():
            assert tensor.shape[0] == len(RUNS), name
            assert torch.allclose(tensor[i], alone[name][0], atol=1e-5), name


@each_method
def test_training_goes_on_from_its_tensors_exactly(method: Method) -> None:
    data = make_small_data()
    whole = updated(method.learner(data, RUNS, Compute()), 5)
    half = updated(method.learner(data, RUNS, Compute()), 2)
    kept = {name: tensor.clone() for name, tensor in half.state_dict().items()}
    resumed = method.learner(data, RUNS, Compute())
    resumed.restore(kept, half.step)
    for name, tensor in updated(resumed, 3).state_dict().items():
        assert torch.equal(tensor, whole.state_dict()[name]), name


@each_method
def test_metrics_are_those_announced(method: Method) -> None:
    metrics = method.learner(make_small_data(), RUNS, Compute()).update()
    assert set(metrics) == set(method.metrics)
    assert all(values.shape == (len(RUNS),) for values in metrics.values())


@each_method
def test_a_policy_acts_the_same_alone_in_a_stack_and_from_a_file(method: Method, tmp_path: Any) -> None:
    policy = updated(method.learner(make_small_data(), RUNS, Compute()), 2).policy()
    policy.save(tmp_path / "policy.safetensors")
    loaded, single = load_policy(tmp_path / "policy.safetensors"), policy[1]
    observations = np.random.default_rng(0).normal(size=(5, 3)).astype(np.float32)
    for p in (policy, loaded, single):
        p.reset(7)
    for observation in observations:
        actions = policy.act(observation)
        assert actions.shape == (3, 2)
        assert np.abs(actions).max() <= 1
        assert np.array_equal(actions, loaded.act(observation))
        assert np.allclose(actions[1], single.act(observation), atol=1e-6)
        for p in (policy, loaded, single):
            p.observe(1.0, 1.0)


@pytest.mark.parametrize("method", [BCSafe(**NETS), *METHODS], ids=label)
def test_products_in_bfloat16_stay_near_the_full_ones(method: Method) -> None:
    """They keep eight bits; losses and weights are in float32 all the same."""
    assert method.has_bf16
    data, results = make_small_data(), []
    for half in (False, True):
        learner = method.learner(data, RUNS, Compute(bf16=half))
        results.append(learner.update())
        assert {tensor.dtype for tensor in learner.parameters()} == {torch.float32}
    full, rounded = results
    for name, values in full.items():
        assert values.dtype == rounded[name].dtype == torch.float32, name
        assert torch.allclose(values, rounded[name], rtol=5e-2, atol=5e-2), (name, values, rounded[name])
    assert any(not torch.equal(full[name], rounded[name]) for name in full)
