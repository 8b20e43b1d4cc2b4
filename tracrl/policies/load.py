"""Policies from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tracrl.policies.candidates
import tracrl.policies.mlp
import tracrl.policies.transformer  # noqa: F401 (a kind is known once its module is)
from tracrl.errors import TracrlError
from tracrl.policies.base import KINDS, Policy, PolicyMetadata
from tracrl.tensor_files import load_tensors


def load_policy(path: str | Path) -> Policy:
    """The stack of policies that :meth:`Policy.save` wrote. Loading runs no code from the file."""
    path = Path(path)
    if path.is_dir():
        path = path / "policy.safetensors"
    try:
        header, tensors = load_tensors(path, "numpy")
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
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise TracrlError(f"{path} is not a policy written by tracrl, or it was cut off ({error}).") from error
