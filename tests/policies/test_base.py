from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.methods.method import RunSpec
from tracrl.methods.trac import TraC
from tracrl.policies.base import Policy, PolicyMetadata
from tracrl.policies.load import load_policy
from tracrl.policies.mlp import MLPPolicy


@pytest.fixture
def stack(small_data: Episodes) -> Policy:
    return (
        TraC(hidden=(8, 8), batch_size=4)
        .learner(small_data, [RunSpec(4, 0), RunSpec(5, 1)], torch.device("cpu"))
        .policy()
    )


def test_numpy_acts_as_the_network_does(small_data: Episodes) -> None:
    learner = TraC(hidden=(8, 8), batch_size=4).learner(small_data, [RunSpec(4, 0), RunSpec(5, 1)], torch.device("cpu"))
    x = torch.randn(7, 3)
    expected = learner.network(x.expand(2, -1, -1)).detach().numpy()
    assert np.allclose(learner.policy().act(x.numpy()), expected, atol=1e-6)


def test_shapes_of_a_stack_and_of_one(stack: Policy) -> None:
    assert stack.act(np.zeros(3)).shape == (2, 2)
    assert stack.act(np.zeros((5, 3))).shape == (2, 5, 2)
    assert stack[1].act(np.zeros(3)).shape == (2,)
    assert stack[1].act(np.zeros((5, 3))).shape == (5, 2)
    assert np.array_equal(stack.act(np.ones(3))[1], stack[1].act(np.ones(3)))
    assert np.array_equal(stack[[1, 0]].act(np.ones(3)), stack.act(np.ones(3))[::-1])
    assert stack[[1, 0]].metadata.seeds == (1, 0)


def test_a_policy_beyond_the_stack_is_an_index_error(stack: Policy) -> None:
    with pytest.raises(IndexError, match="2 policies"):
        stack[2]


def test_actions_are_in_the_box_of_the_task() -> None:
    facts = PolicyMetadata("trac", (1.0,), (0,), action_low=(0.0, -10.0), action_high=(4.0, 10.0))
    zero = MLPPolicy(facts, {"weight0": np.zeros((1, 3, 2), np.float32), "bias0": np.zeros((1, 1, 2), np.float32)})
    assert zero[0].act(np.ones(3)).tolist() == [2.0, 0.0]
    full = MLPPolicy(facts, {"weight0": np.zeros((1, 3, 2), np.float32), "bias0": np.full((1, 1, 2), 99, np.float32)})
    assert full[0].act(np.ones(3)).tolist() == [4.0, 10.0]


def test_saved_and_loaded_it_is_the_same(stack: Policy, tmp_path: Path) -> None:
    stack.save(tmp_path / "policy.safetensors")
    for place in (tmp_path, tmp_path / "policy.safetensors"):
        again = load_policy(place)
        assert again.metadata == stack.metadata
        assert np.array_equal(again.act(np.ones(3)), stack.act(np.ones(3)))


def test_each_policy_has_a_limit(stack: Policy) -> None:
    assert stack.at([1, 2]).metadata.limits == (1.0, 2.0)
    assert stack[[0, 0, 1]].at([1, 2, 3]).metadata.seeds == (0, 0, 1)
    with pytest.raises(TracrlError, match="There are 3 limits for 2 policies"):
        stack.at([1, 2, 3])


def test_joining_stacks_keeps_their_order(stack: Policy) -> None:
    joined = stack[[0]].joined_with([stack[[1]]])
    assert joined.metadata == stack.metadata
    assert all(np.array_equal(joined.tensors[k], stack.tensors[k]) for k in stack.tensors)


def test_the_wrong_observation_is_said(stack: Policy) -> None:
    with pytest.raises(TracrlError, match=r"shape \(4,\); expected \(3,\) or \(n, 3\)"):
        stack.act(np.zeros(4))


@pytest.mark.parametrize("content", [b"", b"not a policy", b"\x08\x00\x00\x00\x00\x00\x00\x00{}      "])
def test_a_file_that_is_no_policy_is_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "policy.safetensors"
    path.write_bytes(content)
    with pytest.raises(TracrlError, match="is not a policy written by tracrl, or it was cut off"):
        load_policy(path)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("settings", None),
        ("settings", 3),
        ("settings", {"phi": 1}),
        ("kind", "none such"),
        ("metadata", []),
        ("metadata", {}),
    ],
)
def test_a_damaged_header_is_said(stack: Policy, tmp_path: Path, part: str, value: object) -> None:
    path = tmp_path / "policy.safetensors"
    stack.save(path)
    with safe_open(path, "np") as file:
        header = json.loads(file.metadata()["tracrl"])
    header[part] = value
    if value is None:
        del header[part]
    path.write_bytes(save(stack.tensors, metadata={"tracrl": json.dumps(header)}))
    with pytest.raises(TracrlError, match="is not a policy written by tracrl, or it was cut off"):
        load_policy(path)


def test_tensors_that_are_not_the_policys_are_said(stack: Policy, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    stack.save(path)
    with safe_open(path, "np") as file:
        header = file.metadata()
    path.write_bytes(save({"weight0": stack.tensors["weight0"]}, metadata=header))
    with pytest.raises(TracrlError, match="is not a policy written by tracrl, or it was cut off"):
        load_policy(path)


def test_a_policy_that_is_cut_off_or_missing_is_said(stack: Policy, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    stack.save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TracrlError, match="cut off"):
        load_policy(path)
    with pytest.raises(TracrlError, match="There is no policy at"):
        load_policy(tmp_path / "elsewhere")
