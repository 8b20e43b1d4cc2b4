from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tracrl.data.episodes import Episodes
from tracrl.errors import TracrlError
from tracrl.methods.method import Compute, RunSpec
from tracrl.methods.registry import METHODS
from tracrl.methods.trac import TraC
from tracrl.policies.base import KINDS, Policy, PolicyMetadata
from tracrl.policies.load import load_policy
from tracrl.policies.mlp import MLPPolicy
from tracrl.tensor_files import load_tensors, save_tensors


@pytest.fixture
def stack(small_data: Episodes) -> Policy:
    return TraC(hidden=(8, 8), batch_size=4).learner(small_data, [RunSpec(4, 0), RunSpec(5, 1)], Compute()).policy()


def test_numpy_acts_as_the_network_does(small_data: Episodes) -> None:
    learner = TraC(hidden=(8, 8), batch_size=4).learner(small_data, [RunSpec(4, 0), RunSpec(5, 1)], Compute())
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
    metadata = PolicyMetadata("trac", (1.0,), (0,), action_low=(0.0, -10.0), action_high=(4.0, 10.0))
    zero = MLPPolicy(metadata, {"weight0": np.zeros((1, 3, 2), np.float32), "bias0": np.zeros((1, 1, 2), np.float32)})
    assert zero[0].act(np.ones(3)).tolist() == [2.0, 0.0]
    full = MLPPolicy(
        metadata, {"weight0": np.zeros((1, 3, 2), np.float32), "bias0": np.full((1, 1, 2), 99, np.float32)}
    )
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


def rewrite(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> None:
    """Change header and tensors, with a checksum that holds."""
    header, tensors = load_tensors(path, "numpy")
    change(header, tensors)
    save_tensors(path, tensors, header, "numpy")


def said_of(stack: Policy, path: Path, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> str:
    stack.save(path)
    rewrite(path, change)
    with pytest.raises(TracrlError) as caught:
        load_policy(path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{path} is not a policy written by tracrl, or it was cut off (")
    return sentence


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ("settings", None, "settings"),
        ("settings", 3, "mapping"),
        ("settings", {"phi": 1}, "phi"),
        ("settings", {"tensors": 1}, "tensors"),
        ("kind", None, "kind"),
        ("kind", ["mlp"], "its kind is"),
        ("metadata", [], "its metadata is []"),
        ("metadata", {}, "missing"),
        ("metadata", "text", "its metadata is 'text'"),
    ],
)
def test_a_damaged_header_is_said(stack: Policy, tmp_path: Path, part: str, value: object, words: str) -> None:
    def change(header: dict[str, Any], _: object) -> None:
        header[part] = value
        if value is None:
            del header[part]

    assert words in said_of(stack, tmp_path / "policy.safetensors", change)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"seeds": [0]}, "it has 2 limits and 1 seeds"),
        ({"seeds": [0, 1, 2]}, "it has 2 limits and 3 seeds"),
        ({"limits": [1.0]}, "it has 1 limits and 2 seeds"),
        ({"limits": [1.0, 2, 3], "seeds": [0, 1, 2]}, "for 3 policies"),
        ({"limits": [1.0], "seeds": [0]}, "for 1 policies"),
        ({"limits": ["low", "high"]}, "its limits are ('low', 'high'), where finite numbers were expected"),
        ({"limits": [1.0, float("nan")]}, "where finite numbers were expected"),
        ({"limits": [1.0, float("inf")]}, "where finite numbers were expected"),
        ({"limits": [1.0, 10**400]}, "where finite numbers were expected"),
        ({"limits": [1.0, None]}, "where finite numbers were expected"),
        ({"limits": [True, False]}, "where finite numbers were expected"),
        ({"limits": None}, "its limits are None"),
        ({"limits": "ten"}, "its limits are 'ten'"),
        ({"limits": {"a": 1}}, "its limits are {'a': 1}"),
        ({"seeds": [0.5, 1]}, "its seeds are (0.5, 1)"),
        ({"seeds": 3}, "its seeds are 3"),
        ({"limits": [], "seeds": []}, "its limits are (), where one or more were expected"),
        ({"action_low": [-1.0]}, "it has 1 action_low and 2 action_high"),
        ({"action_low": [-1.0] * 3, "action_high": [1.0] * 3}, "its actions have shape (2, 1, 2), where (2, 1, 3)"),
        ({"action_low": [2.0, 2.0]}, "the low end of its action box is above the high end"),
        ({"action_low": [[-1.0], [-1.0]]}, "its action_low are"),
        ({"method": 3}, "its method is 3"),
        ({"task": ["BallRun"]}, "its task ('BallRun',)"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_metadata_that_do_not_fit_are_said(stack: Policy, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    sentence = said_of(stack, tmp_path / "policy.safetensors", lambda header, _: header["metadata"].update(changes))
    assert words in sentence


def test_tensors_that_do_not_fit_are_said(stack: Policy, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    assert "bias1" in said_of(stack, path, lambda _, tensors: tensors.pop("bias1"))
    assert "IndexError" in said_of(stack, path, lambda _, tensors: tensors.clear())
    other = {"weight1": np.zeros((2, 5, 8), np.float32)}
    assert "matmul" in said_of(stack, path, lambda _, tensors: tensors.update(other))
    assert "has shape ()" in said_of(stack, path, lambda _, tensors: tensors.update(bias1=np.zeros((), np.float32)))
    nan = {"bias1": np.full((2, 1, 8), np.nan, np.float32)}
    assert "bias1 holds numbers that are not finite" in said_of(stack, path, lambda _, tensors: tensors.update(nan))


@pytest.mark.parametrize("kind", METHODS)
@pytest.mark.parametrize("fault", ["more", "whole numbers"])
def test_tensors_that_no_policy_acts_with_are_said(small_data: Episodes, tmp_path: Path, kind: str, fault: str) -> None:
    path = tmp_path / "policy.safetensors"
    small = {"width": 8, "layers": 1, "heads": 1} if kind == "cdt" else {"hidden": (8, 8)}
    METHODS[kind](**small, batch_size=4).learner(small_data, [RunSpec(4, 0), RunSpec(5, 1)], Compute()).policy().save(
        path
    )
    load_policy(path)
    header, tensors = load_tensors(path, "numpy")
    if fault == "more":
        tensors["stranger"] = np.zeros((2, 3), np.float32)
        words = "it also holds stranger, which is no part of such a policy"
    else:
        tensors = {name: tensor.astype(np.int32) for name, tensor in tensors.items()}
        words = "holds int32, where float32 was expected"
    save_tensors(path, tensors, header, "numpy")
    with pytest.raises(TracrlError, match=rf"policy\.safetensors is not a policy written by tracrl.*{words}"):
        load_policy(path)


def test_an_empty_stack_is_said(stack: Policy) -> None:
    with pytest.raises(TracrlError, match="where one or more were expected"):
        stack[[]]


def test_the_headers_of_version_0_4_are_read(stack: Policy, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    stack.save(path)
    rewrite(path, lambda header, _: header.update(facts=header.pop("metadata")))
    assert load_policy(path).metadata == stack.metadata


def test_a_kind_of_ones_own_registers_itself(stack: Policy, tmp_path: Path) -> None:
    class Cautious(MLPPolicy):
        kind = "cautious, for a test"

    Cautious(stack.metadata, stack.tensors).save(tmp_path / "policy.safetensors")
    assert isinstance(load_policy(tmp_path), Cautious)
    del KINDS[Cautious.kind]  # as in a process that has not imported its module
    with pytest.raises(TracrlError, match=r"of the kind 'cautious, for a test', .* --method my_file:Mine"):
        load_policy(tmp_path)


def test_a_kind_keeps_its_name_to_itself(stack: Policy, tmp_path: Path) -> None:
    with pytest.raises(TracrlError, match="Other has the kind 'mlp' of MLPPolicy: choose another name"):

        class Other(MLPPolicy):
            kind = "mlp"

    class Unnamed(MLPPolicy):
        pass

    with pytest.raises(TracrlError, match="Unnamed cannot be saved: give it a kind of its own"):
        Unnamed(stack.metadata, stack.tensors).save(tmp_path / "policy.safetensors")
    assert KINDS["mlp"] is MLPPolicy


def test_a_policy_that_is_cut_off_or_missing_is_said(stack: Policy, tmp_path: Path) -> None:
    path = tmp_path / "policy.safetensors"
    stack.save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TracrlError, match="cut off"):
        load_policy(path)
    with pytest.raises(TracrlError, match="There is no policy at"):
        load_policy(tmp_path / "elsewhere")
