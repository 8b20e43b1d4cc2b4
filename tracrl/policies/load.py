"""Policies from files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import tracrl.policies.any_limit
import tracrl.policies.candidates
import tracrl.policies.mlp
import tracrl.policies.switching
import tracrl.policies.transformer  # noqa: F401 (a kind is known once its module is)
from tracrl.errors import TracrlError
from tracrl.policies.base import KINDS, Floats, Policy, PolicyMetadata
from tracrl.tensor_files import load_tensors


def load_policy(path: str | Path) -> Policy:
    """The stack of policies that :meth:`Policy.save` wrote. Loading runs no code from the file."""
    path = Path(path)
    if path.is_dir():
        path = path / "policy.safetensors"
    try:
        header, tensors = load_tensors(path, "numpy")
        metadata = _metadata(header)
        kind = _kind(header, path)
        _check_tensors(tensors, metadata)
        policy = kind(metadata, tensors, False, **header["settings"])
        _check_names(policy)
        _try(policy)
    except FileNotFoundError as error:
        raise TracrlError(
            f"There is no policy at {path}; a finished run directory holds a policy.safetensors."
        ) from error
    except UnknownKindError:
        raise
    except Exception as error:  # a kind that is made from a damaged file may raise anything
        reason = repr(error) if isinstance(error, LookupError) else str(error)
        raise TracrlError(
            f"{path} is not a policy written by tracrl, or it was cut off ({reason:.300}): train it again, or take "
            "another copy of it."
        ) from error
    return policy


class UnknownKindError(TracrlError):
    """The class of the policy has not been defined here."""


def _metadata(header: Mapping[str, Any]) -> PolicyMetadata:
    stored = header["metadata"] if "metadata" in header else header["facts"]  # its name before version 0.5
    if not isinstance(stored, dict):
        raise TypeError(f"its metadata is {stored!r:.80}, where an object was expected")
    given: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in stored.items()}
    return PolicyMetadata(**given)


def _kind(header: Mapping[str, Any], path: Path) -> type[Policy]:
    name = header["kind"]
    if not isinstance(name, str):
        raise TypeError(f"its kind is {name!r:.80}, where a name was expected")
    if name not in KINDS:
        raise UnknownKindError(
            f"{path} holds a policy of the kind {name!r:.80}, which is none of tracrl's: name the method that made it "
            "with the file that defines it, such as --method my_file:Mine; in Python, import that file first."
        )
    return KINDS[name]


def _check_tensors(tensors: Mapping[str, Floats], metadata: PolicyMetadata) -> None:
    count = len(metadata.seeds)
    for name, tensor in tensors.items():
        if tensor.ndim == 0 or len(tensor) != count:
            raise ValueError(f"{name:.80} has shape {tensor.shape}, for {count} policies")
        if not np.isfinite(tensor).all():
            raise ValueError(f"{name:.80} holds numbers that are not finite")


def _check_names(policy: Policy) -> None:
    """What a policy would not act with is no part of it, and whole numbers were never its weights."""
    names = policy.tensor_names()
    if names is None:
        return
    if others := sorted(policy.tensors.keys() - names):
        raise ValueError(f"it also holds {others[0]:.80}, which is no part of such a policy")
    for name, tensor in policy.tensors.items():
        if tensor.dtype != np.float32:
            raise ValueError(f"{name:.80} holds {tensor.dtype}, where float32 was expected")


def _try(policy: Policy) -> None:
    """One action of each: shapes that do not fit together are found here, and not in the middle of an evaluation."""
    if len(policy.metadata.observation_mean) not in (0, policy.observation_size):
        raise ValueError(
            f"it standardises {len(policy.metadata.observation_mean)} of {policy.observation_size} columns"
        )
    size, expected = policy.observation_size, (len(policy), 1, len(policy.metadata.action_low))
    with np.errstate(all="ignore"):
        found = policy.act_scaled(np.zeros((1, size), np.float32)).shape
    if found != expected:
        raise ValueError(f"its actions have shape {found}, where {expected} was expected")
    policy.reset(0)
