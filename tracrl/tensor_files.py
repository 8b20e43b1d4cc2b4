"""Tensors and a JSON header in one safetensors file, with a checksum of the whole of it.

The checksum stands in the header, and is computed with zeros in its own place: so it covers every byte of the file. A
safetensors file runs no code when it is loaded.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import struct
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from safetensors import SafetensorError

from tracrl.files import replacing

KEY = "tracrl"
"""The one key of safetensors' own metadata that is used: more than one would be written in a random order."""
FORMAT = 2
"""1 had no checksum."""
_CHECKSUM = re.compile(rb'(?<=\{"__metadata__":\{"tracrl":"\{\\"checksum\\": \\")[0-9a-f]{32}')
_LENGTH = struct.Struct("<Q")

Library = Literal["numpy", "torch"]


class TensorFileError(ValueError):
    """The file is not one of ours, or not as it was written; the text says in what way."""


def save_tensors(path: Path, tensors: Mapping[str, Any], header: Mapping[str, Any], library: Library) -> None:
    """Write arrays of NumPy or torch, and a header of plain values."""
    text = json.dumps({"checksum": "0" * 32, "format": FORMAT, **header})
    content = _functions(library).save(dict(tensors), metadata={KEY: text})
    with replacing(path) as aside:
        aside.write_bytes(_CHECKSUM.sub(_digest(content).encode(), content, count=1))


def load_tensors(path: Path, library: Library) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and tensors as they were saved; :class:`TensorFileError` where they are not, OSError without a file."""
    content, header = _read(path)
    try:
        tensors = _functions(library).load(content)
    except (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, AssertionError) as error:
        raise TensorFileError(str(error)) from error
    if "checksum" not in header:
        warnings.warn(
            "Files from before version 0.5 have no checksum: damage to their weights goes unseen.", stacklevel=1
        )
    return {key: value for key, value in header.items() if key not in ("checksum", "format")}, tensors


def checksum_holds(path: Path) -> bool:
    """Whether a file is there and as it was written; a file from before there were checksums counts as such."""
    try:
        _read(path)
    except (OSError, TensorFileError):
        return False
    return True


def has_checksum(path: Path) -> bool:
    """Whether a file that :func:`checksum_holds` for has one; files from before version 0.5 have none."""
    return "checksum" in _read(path)[1]


def _read(path: Path) -> tuple[bytes, dict[str, Any]]:
    """The bytes of the file and our header in them, once the checksum is found to hold."""
    if path.exists() and not path.is_file():
        raise TensorFileError("it is no regular file")
    with path.open("rb") as file:
        start = file.read(_LENGTH.size)
        size = _LENGTH.unpack(start)[0] if len(start) == _LENGTH.size else 0
        if not 0 < size <= path.stat().st_size - len(start):  # asked first: a file of gigabytes is not read in vain
            raise TensorFileError("it does not begin with a header")
        described = file.read(size)
        header = _header(described)
        content = start + described + file.read()
    has_checksum, number = "checksum" in header, header.get("format", 1)
    if header["checksum"] != _digest(content) if has_checksum else number == FORMAT:
        raise TensorFileError("its checksum does not hold: it was changed or damaged after it was written")
    if number != (FORMAT if has_checksum else 1):
        raise TensorFileError(f"it has format {number!r:.80}, of another version of tracrl")
    return content, header


def _header(described: bytes) -> dict[str, Any]:
    try:
        header = json.loads(json.loads(described)["__metadata__"][KEY])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TensorFileError("it has no header of tracrl's") from error
    if not isinstance(header, dict):
        raise TensorFileError(f"its header is {header!r:.80}, where an object was expected")
    return header


def _digest(content: bytes) -> str:
    """Of the file with zeros in the checksum's place."""
    return hashlib.blake2b(_CHECKSUM.sub(b"0" * 32, content, count=1), digest_size=16).hexdigest()


def _functions(library: Library) -> Any:
    """Imported when needed: a policy is loaded without torch."""
    return importlib.import_module(f"safetensors.{library}")
