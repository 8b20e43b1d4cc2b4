"""Policies and checkpoints whose bits, headers or tensors are not what was written."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from tests.corpus.case import Case, Expected
from tracrl.tensor_files import save_tensors

POLICY = "ball-run/policy.safetensors"
CHECKPOINT = "stopped-run/checkpoint.safetensors"
RESUME = (
    "train bc-all --data own.hdf5 --limits 4 --hidden 8 8 --batch-size 8 --updates 30000 --out stopped-run --resume"
)
DROPPED = object()


def cases() -> Iterator[Case]:
    yield from _bits("policy", POLICY, "evaluate ball-run --episodes 1", "policy.safetensors", ("ball-run",))
    yield from _bits("checkpoint", CHECKPOINT, RESUME, "checkpoint.safetensors", ("own.hdf5", "stopped-run"))
    yield from _policy_headers()
    yield from _checkpoint_headers()


def _bits(what: str, file: str, command: str, says: str, takes: tuple[str, ...]) -> Iterator[Case]:
    def case(name: str, make: Callable[[Path], Any], expected: Expected = "refused") -> Case:
        return Case("policies", f"{what} {name}", command, expected, says, lambda f: make(f / file), takes)

    def changed(change: Callable[[bytearray], Any]) -> Callable[[Path], None]:
        def make(path: Path) -> None:
            content = bytearray(path.read_bytes())
            made = change(content)
            path.write_bytes(content if made is None else made)

        return make

    for percent in (0, 1, 20, 50, 80, 99):
        yield case(f"bit flipped at {percent} %", changed(lambda c, p=percent: _flip(c, len(c) * p // 100)))
        yield case(f"cut at {percent} %", changed(lambda c, p=percent: c[: len(c) * p // 100]))
    yield case("last bit flipped", changed(lambda c: _flip(c, len(c) - 1)))
    yield case("last byte gone", changed(lambda c: c[:-1]))
    yield case("a byte more", changed(lambda c: c + b"x"))
    yield case("zeros", changed(lambda c: bytes(len(c))))
    yield case("a pickle", changed(lambda _: b"\x80\x04cos\nsystem\n(S'true'\ntR."))
    yield case("a header of 2^60", changed(lambda c: struct.pack("<Q", 2**60) + c[8:]))
    yield case("a header that is no JSON", changed(lambda c: c[:8] + b"{" * 40 + c[48:]))
    yield case("a folder", lambda path: (path.unlink(), path.mkdir()))
    yield case("a pipe", lambda path: (path.unlink(), os.mkfifo(path)))
    yield case("a link to itself", lambda path: (path.unlink(), path.symlink_to(path.name)))


def _flip(content: bytearray, place: int) -> None:
    content[place] ^= 4


def _policy_headers() -> Iterator[Case]:
    """With a checksum that holds, and in the old way without one."""
    metadata: dict[str, Any] = {
        "method": [None, 7, [], "x" * 3000, DROPPED],
        "limits": [
            None,
            [],
            [10.0],
            [10.0, 20.0, 40.0],
            "ab",
            ["a", "b"],
            [None, None],
            7,
            [float("nan"), 1.0],
            {},
            DROPPED,
        ],
        "seeds": [None, [], [0], [0, 0, 0], "ab", ["a", "b"], [0.5, 1.5], 7, {}, DROPPED],
        "action_low": [None, [], [-1.0], [-1.0] * 3, "ab", [float("nan"), -1.0], DROPPED],
        "action_high": [None, [], [1.0], ["a", "b"], [[1.0, 1.0]], DROPPED],
        "task": [7, [], "BalRun", "[bold]", "CarRun", "AntRun"],
        "stranger": ["x"],
    }
    number = 0
    for key, values in metadata.items():
        for value in values:
            number += 1
            said = "gone" if value is DROPPED else f"{value!r:.30}"
            yield _policy_case(
                f"header {key} {said}", lambda h, t, k=key, v=value: _set(h["metadata"], k, v), number % 2
            )
    for key in ("kind", "settings", "metadata"):
        for value in (None, 7, [], "nonsense", {"a": 1}, DROPPED):
            said = "gone" if value is DROPPED else f"{value!r}"
            number += 1
            yield _policy_case(f"header {key} {said}", lambda h, t, k=key, v=value: _set(h, k, v), number % 2)
    changes: dict[str, Callable[[dict[str, Any]], Any]] = {
        "no tensors": lambda t: t.clear(),
        "one tensor gone": lambda t: t.pop(sorted(t)[0]),
        "a tensor more": lambda t: t.update(stranger=np.zeros((2, 3), np.float32)),
        "an empty stack": lambda t: t.update({k: v[:0] for k, v in t.items()}),
        "a stack of one": lambda t: t.update({k: v[:1] for k, v in t.items()}),
        "NaN": lambda t: t.update({k: v * np.float32(np.nan) for k, v in t.items()}),
        "whole numbers": lambda t: t.update({k: v.astype(np.int32) for k, v in t.items()}),
        "scalars": lambda t: t.update({k: np.array(1, np.float32) for k in t}),
        "turned round": lambda t: t.update({k: np.ascontiguousarray(v.T) for k, v in t.items()}),
    }
    for name, change in changes.items():
        yield _policy_case(f"tensors: {name}", lambda h, t, change=change: change(t), 1)
    for value in ("null", "[]", "7", '"x"', "{", "[" * 100_000):
        yield Case(
            "policies", f"policy's whole header {value:.8}", "evaluate ball-run --episodes 1", "refused",
            "policy.safetensors", lambda f, v=value: _rewrite(f / POLICY, v), ("ball-run",),
        )  # fmt: skip


def _policy_case(name: str, change: Callable[[dict[str, Any], dict[str, Any]], Any], checksum: int) -> Case:
    def make(folder: Path) -> None:
        header, tensors = _opened(folder / POLICY)
        change(header, tensors)
        if checksum:
            save_tensors(folder / POLICY, tensors, header, "numpy")
        else:
            _rewrite(folder / POLICY, json.dumps(header), tensors)

    # A task's name alone may be mended by evaluating it: words about the file are not asked for.
    says = "" if " task " in name or " method " in name else "policy.safetensors|ball-run"
    expected: Expected = "either" if says == "" else "refused"
    return Case("policies", f"policy {name}", "evaluate ball-run --episodes 1", expected, says, make, ("ball-run",))


def _checkpoint_headers() -> Iterator[Case]:
    values: dict[str, list[Any]] = {
        "step": [None, -1, "x", 1.5, [], {}, 30_001, 10**30, True, DROPPED],
        "method": [None, 7, "cdt", DROPPED],
    }
    for key, options in values.items():
        for value in options:

            def make(folder: Path, key: str = key, value: Any = value) -> None:
                header, tensors = _opened(folder / CHECKPOINT)
                _set(header, key, value)
                save_tensors(folder / CHECKPOINT, tensors, header, "numpy")

            said = "gone" if value is DROPPED else f"{value!r}"
            expected: Expected = "either" if key == "method" else "refused"
            yield Case(
                "policies", f"checkpoint header {key} {said}", RESUME, expected,
                "checkpoint.safetensors" if expected == "refused" else "", make, ("own.hdf5", "stopped-run"),
                writes=() if expected == "refused" else ("stopped-run/*",),
            )  # fmt: skip
    for value in ("null", "[]", "7", '"x"', '{"step": {"step": 3}}', "{"):
        yield Case(
            "policies", f"checkpoint's whole header {value}", RESUME, "refused", "checkpoint.safetensors",
            lambda f, v=value: _rewrite(f / CHECKPOINT, v), ("own.hdf5", "stopped-run"),
        )  # fmt: skip
    for name, change in {
        "no tensors": lambda t: t.clear(),
        "one tensor gone": lambda t: t.pop(sorted(t)[0]),
        "other shapes": lambda t: t.update({k: np.zeros((3, 5), v.dtype) for k, v in t.items()}),
        "other kinds": lambda t: t.update({k: v.astype(np.int64) for k, v in t.items()}),
    }.items():

        def make_tensors(folder: Path, change: Callable[[dict[str, Any]], Any] = change) -> None:
            header, tensors = _opened(folder / CHECKPOINT)
            change(tensors)
            save_tensors(folder / CHECKPOINT, tensors, header, "numpy")

        yield Case(
            "policies", f"checkpoint tensors: {name}", RESUME, "refused", "checkpoint.safetensors",
            make_tensors, ("own.hdf5", "stopped-run"),
        )  # fmt: skip
    yield Case(
        "policies", "checkpoint of another run", RESUME.replace("--limits 4", "--limits 5"), "refused",
        "stopped-run holds another run", None, ("own.hdf5", "stopped-run"),
    )  # fmt: skip


def _opened(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["tracrl"])
    return {k: v for k, v in header.items() if k not in ("checksum", "format")}, load(content)


def _rewrite(path: Path, header: str, tensors: dict[str, Any] | None = None) -> None:
    path.write_bytes(save(_opened(path)[1] if tensors is None else tensors, metadata={"tracrl": header}))


def _set(there: dict[str, Any], key: str, value: Any) -> None:
    if value is DROPPED:
        there.pop(key, None)
    else:
        there[key] = value
