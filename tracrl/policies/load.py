"""Policies from files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

import tracrl.policies.candidates
import tracrl.policies.mlp
import tracrl.policies.transformer  # noqa: F401 (a kind is known once its module is)
from tracrl.errors import TracrlError
from tracrl.policies.base import HEADER, KINDS, Policy, PolicyMetadata


def load_policy(path: str | Path) -> Policy:
    """The stack of policies that :meth:`Policy.save` wrote. Loading runs no code from the file."""
    path = Path(path)
    if path.is_dir():
        path = path / "policy.safetensors"
    try:
        with safe_open(path, "np") as file:
            header = json.loads((file.metadata() or {})[HEADER])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        stored: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v
            for k, v in dict(header.get("metadata") or header["facts"]).items()
        }
        metadata = PolicyMetadata(**stored)
        kind = KINDS[header["kind"]]
        return kind(metadata, tensors, **header["settings"])
    except FileNotFoundError as error:
        raise TracrlError(
            f"There is no policy at {path}; a finished run directory holds a policy.safetensors."
        ) from error
    except (SafetensorError, KeyError, ValueError, TypeError, OSError) as error:
        raise TracrlError(f"{path} is not a policy written by tracrl, or it was cut off ({error}).") from error
