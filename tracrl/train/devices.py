"""Where a training computes, and in which precision."""

from __future__ import annotations

import torch

from tracrl.errors import TracrlError
from tracrl.methods.method import Method
from tracrl.train.stack import Precision, has_bf16


def choose_device(name: str) -> torch.device:
    """The device that ``--device`` means on this machine."""
    return torch.device(kind_of_device(name, torch.cuda.is_available()))


def kind_of_device(name: str, gpu: bool) -> str:
    """``cuda`` or ``cpu`` on a machine with or without a ``gpu``; ``auto`` is the GPU where there is one."""
    if name not in ("auto", "cpu", "cuda"):
        raise TracrlError(f"--device is {name!r}; expected auto, cpu or cuda.")
    if name == "cuda" and not gpu:
        raise TracrlError("--device cuda: PyTorch sees no CUDA GPU on this machine; use --device cpu.")
    return "cuda" if name != "cpu" and gpu else "cpu"


def choose_precision(name: str, device: torch.device, method: Method) -> Precision:
    """``auto`` is bfloat16 products on a GPU and on processors that have instructions for them, for methods whose final
    scores they leave as they are (docs/performance.md)."""
    if name not in ("auto", "float32", "bfloat16"):
        raise TracrlError(f"--precision is {name!r}; expected auto, float32 or bfloat16.")
    if name == "bfloat16" and not has_bf16(device):
        raise TracrlError("--precision bfloat16: this processor has no instructions for it; use --precision float32.")
    if name == "bfloat16" and not method.has_bf16:
        raise TracrlError(f"--precision bfloat16: {method.title} multiplies in float32 alone; use --precision float32.")
    by_itself = name == "auto" and method.has_bf16 and method.bf16_by_itself and rounds_by_itself(device)
    return "bfloat16" if name == "bfloat16" or by_itself else "float32"


def rounds_by_itself(device: torch.device) -> bool:
    """Whether ``auto`` may round products there: where that is faster."""
    return has_bf16(device)


def name_of(device: torch.device) -> str:
    """For the record: ``cpu``, or the GPU's own name."""
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type
