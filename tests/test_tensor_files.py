from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save

from tracrl.checkpoints import Checkpoint
from tracrl.errors import TracrlError
from tracrl.policies.base import PolicyMetadata
from tracrl.policies.load import load_policy
from tracrl.policies.mlp import MLPPolicy
from tracrl.tensor_files import TensorFileError, checksum_holds, load_tensors, save_tensors

TENSORS = {"weight": np.arange(6, dtype=np.float32).reshape(2, 3), "none": np.zeros((0, 2), np.int64)}
HEADER = {"step": 3, "note": 'Ünïcode, "quotes" and {"checksum": "00000000000000000000000000000000"}'}


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file.safetensors"
    save_tensors(path, TENSORS, HEADER, "numpy")
    for library in ("numpy", "torch"):
        header, tensors = load_tensors(path, library)
        assert header == HEADER
        assert {name: np.asarray(tensor).tolist() for name, tensor in tensors.items()} == {
            name: tensor.tolist() for name, tensor in TENSORS.items()
        }
    assert checksum_holds(path)


def test_the_same_content_is_the_same_bytes_in_every_process(tmp_path: Path) -> None:
    script = (
        "import numpy as np, pathlib, sys; from tracrl.tensor_files import save_tensors;"
        "save_tensors(pathlib.Path(sys.argv[1]), {'b': np.ones(3), 'a': np.zeros(2)}, {'x': 1, 'y': [2]}, 'numpy')"
    )
    for name in ("one", "two"):
        subprocess.run([sys.executable, "-c", script, str(tmp_path / name)], check=True)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_single_flipped_bit_is_found_wherever_it_is(tmp_path: Path) -> None:
    path = tmp_path / "file.safetensors"
    save_tensors(path, TENSORS, HEADER, "numpy")
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 11):  # every bit of a byte in turn
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        assert not checksum_holds(path), f"bit {bit % 8} of byte {bit // 8}: {whole[bit // 8 - 10 : bit // 8 + 10]!r}"
    for length in range(0, len(whole), 29):
        path.write_bytes(whole[:length])
        assert not checksum_holds(path)
    path.write_bytes(whole + b"\0")
    assert not checksum_holds(path)


@pytest.mark.parametrize("flip", [-1, -9, 100])
def test_a_flipped_bit_in_a_policy_or_checkpoint_is_said(tmp_path: Path, flip: int) -> None:
    metadata = PolicyMetadata("trac", (1.0,), (0,), action_low=(-1.0,), action_high=(1.0,))
    policy = MLPPolicy(metadata, {"weight0": np.ones((1, 3, 1), np.float32), "bias0": np.ones((1, 1, 1), np.float32)})
    path = tmp_path / "policy.safetensors"
    policy.save(path)
    _flip(path, flip)
    with pytest.raises(TracrlError, match=r"policy.safetensors is not a policy .* \(its checksum does not hold"):
        load_policy(path)
    path = tmp_path / "checkpoint.safetensors"
    Checkpoint(7, {"weight": torch.ones(1, 40)}, {"method": "trac"}).save(path)
    _flip(path, flip)
    words = r"checkpoint.safetensors is not a whole checkpoint \(its checksum does not hold.*remove it and .* --resume"
    with pytest.raises(TracrlError, match=words):
        Checkpoint.load(path)


def _flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_files_from_before_there_were_checksums_load_with_one_note(tmp_path: Path) -> None:
    path = tmp_path / "old.safetensors"
    path.write_bytes(save(TENSORS, metadata={"tracrl": json.dumps({"format": 1, "step": 4, "method": "trac"})}))
    script = (
        "import pathlib, sys; from tracrl.checkpoints import Checkpoint;"
        "found = [Checkpoint.load(pathlib.Path(sys.argv[1])) for _ in range(3)][0];"
        "assert (found.step, found.metadata) == (4, {'method': 'trac'})"
    )
    said = subprocess.run([sys.executable, "-c", script, str(path)], check=True, capture_output=True, text=True).stderr
    assert said.count("Files from before version 0.5 have no checksum") == 1
    assert checksum_holds(path)


@pytest.mark.filterwarnings("ignore:Files from before")
@pytest.mark.parametrize(
    ("header", "words"),
    [
        ("null", "its header is None"),
        ("[1, 2]", r"its header is \[1, 2\]"),
        ("{", "no header of tracrl's"),
        ("[" * 100_000, "no header of tracrl's"),
        ('{"format": 1}', "its step is None"),
        ('{"format": 1, "step": "three"}', "its step is 'three'"),
        ('{"format": 1, "step": -1}', "its step is -1"),
        ('{"format": 1, "step": true}', "its step is True"),
        ('{"format": 1, "step": 1.5}', "its step is 1.5"),
        ('{"format": 1, "step": [[[1]]]}', "its step is "),
        ('{"format": 2, "step": 1}', "its checksum does not hold"),
        ('{"format": 2, "checksum": [], "step": 1}', "its checksum does not hold"),
        ('{"format": 99, "step": 1}', "it has format 99, of another version"),
        ('{"format": null, "step": 1}', "it has format None, of another version"),
    ],
)
def test_headers_of_another_shape_are_said(tmp_path: Path, header: str, words: str) -> None:
    path = tmp_path / "checkpoint.safetensors"
    path.write_bytes(save(TENSORS, metadata={"tracrl": header}))
    with pytest.raises(TracrlError, match=f"checkpoint.safetensors .*{words}.*--resume"):
        Checkpoint.load(path)


def test_what_is_no_file_is_said(tmp_path: Path) -> None:
    for path in (tmp_path, Path("/dev/zero")):
        with pytest.raises(TensorFileError, match="it is no regular file"):
            load_tensors(path, "numpy")
        assert not checksum_holds(path)
    assert not checksum_holds(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        load_tensors(tmp_path / "missing", "numpy")
