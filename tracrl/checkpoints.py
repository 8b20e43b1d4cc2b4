"""Everything that training goes on from, in one file that is either whole or not there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from tracrl.errors import TracrlError
from tracrl.tensor_files import TensorFileError, load_tensors, save_tensors


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a stack after ``step`` updates, and metadata about them."""

    step: int
    tensors: Mapping[str, Tensor]
    metadata: Mapping[str, Any]
    """plain values: which method, what has been scored so far"""

    def save(self, path: Path) -> None:
        tensors = {name: tensor.contiguous() for name, tensor in self.tensors.items()}
        save_tensors(path, tensors, {"step": self.step, **self.metadata}, "torch")

    @classmethod
    def load(cls, path: Path) -> Checkpoint:
        with restoring(path):
            header, tensors = load_tensors(path, "torch")
            step = header.pop("step", None)
            if not isinstance(step, int) or isinstance(step, bool) or step < 0:
                raise TensorFileError(f"its step is {step!r:.80}, where a number of updates was expected")
            return cls(step, tensors, header)


@contextlib.contextmanager
def restoring(path: Path) -> Iterator[None]:
    """What goes wrong inside is the checkpoint's fault: one sentence that says what to do about it."""
    try:
        yield
    except TracrlError as error:  # a sentence already, which need not say which file it is about
        if str(path) in str(error):
            raise
        raise TracrlError(f"{path}: {error}") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        reason = str(error) if isinstance(error, OSError | TensorFileError) else repr(error)
        raise TracrlError(
            f"{path} is not a whole checkpoint ({reason:.300}): remove it and begin anew with --resume, "
            "or choose another --out."
        ) from error
