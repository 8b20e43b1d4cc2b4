"""The one console, and how text is printed: as it is, whatever a name or a file holds, wherever it is shown.

Text is never taken for markup. Where a terminal or a file lacks a character, the nearest that it has is shown (x for ×,
+- for ±); bytes that are no text and control characters are shown as numbers, so that no name can move the cursor.
"""

from __future__ import annotations

import codecs
import contextlib
import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

_NEAREST = {
    **{"×": "x", "±": "+-", "−": "-", "–": "-", "—": "-", "…": "...", "·": "-", "→": "->", "≤": "<=", "≥": ">="},
    **{"‘": "'", "’": "'", "“": '"', "”": '"', "•": "*", "∞": "inf", "✓": "v", "█": "#"},
    **dict.fromkeys("─━═╌┄╴╶╸╺╾╼", "-"),
    **dict.fromkeys("│┃║╎┆", "|"),
}
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_LONGEST_WORD = 400


def nearest(character: str) -> str:
    """What stands for a character where it cannot be shown."""
    if 0xDC80 <= ord(character) <= 0xDCFF:  # a byte of a name that is no UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    if character in _NEAREST:
        return _NEAREST[character]
    name = unicodedata.name(character, "")
    if name.startswith("BOX DRAWINGS"):
        return "+"
    if name.startswith("GREEK SMALL LETTER ") and name.count(" ") == 3:
        return name.rsplit(" ", 1)[1].lower()
    decomposed = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return decomposed or character.encode("ascii", "backslashreplace").decode()


def _replace(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    return "".join(map(nearest, error.object[error.start : error.end])), error.end


codecs.register_error("tracrl-nearest", _replace)


def shown(text: str, encoding: str = "utf-8") -> str:
    """The text as it can be shown in an encoding."""
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    return text.encode(encoding, "tracrl-nearest").decode(encoding)


class PlainConsole(Console):
    """Rich's console, for text that is shown as it is."""

    def __init__(self) -> None:
        super().__init__(highlight=False, emoji=False)
        if not self.is_terminal:
            self.width = 120  # a file or a pipe has no width: tables need not fold at 80

    @property
    def encoding(self) -> str:
        """Of the stream that is written to: Rich draws tables in ASCII where it is not Unicode."""
        return (getattr(self.file, "encoding", None) or "utf-8").lower()

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(shown(text, self.encoding), **{**options, "markup": False, "emoji": False})


console = PlainConsole()


@contextlib.contextmanager
def plain_streams() -> Iterator[None]:
    """Standard output and error that take every character, and are there (closed ones lead nowhere)."""
    for descriptor in range(3):  # else the next file that is opened would be taken for standard output
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    sys.stdout = sys.stdout or Path(os.devnull).open("w")  # noqa: SIM115 (as long as the process)
    sys.stderr = sys.stderr or Path(os.devnull).open("w")  # noqa: SIM115
    before = []
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            before.append((stream, stream.errors))
            stream.reconfigure(errors="tracrl-nearest")
    try:
        yield
    finally:
        for stream, errors in before:
            with contextlib.suppress(OSError, ValueError):
                stream.reconfigure(errors=errors)


def fail(message: str, status: int = 1) -> int:
    """Say on standard error, in one line, why a command ends."""
    if not message:  # nobody is left to read it
        return status
    line = " ".join(re.sub(rf"\S{{{_LONGEST_WORD},}}", _shortened, message).split())
    say_aside(f"tracrl: {line}")
    return status


def note(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """A warning of ours as a line, not with the line of code that it comes from."""
    if issubclass(category, UserWarning):
        say_aside(f"note: {message}")


def say_aside(text: str) -> None:
    try:
        print(shown(text, sys.stderr.encoding or "utf-8"), file=sys.stderr, flush=True)
    except OSError:
        _lead_nowhere(sys.stderr)


def lost_output(probe: bool = False) -> tuple[str, int] | None:
    """Why standard output does not arrive, with the status to end with; None where it does.

    What could not be written is dropped, or Python would stumble over it once more at its end. ``probe``: write an
    empty line to see, where an error does not say whose it is.
    """
    try:
        if probe:
            sys.stdout.write("\n")
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of a pipe has seen enough
        _lead_nowhere(sys.stdout)
        return "", 141
    except (OSError, ValueError) as error:
        _lead_nowhere(sys.stdout)
        reason = error.strerror if isinstance(error, OSError) else error
        return f"Standard output cannot be written ({reason}): lead it elsewhere.", 1
    return None


def _lead_nowhere(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
        stream.flush()


def _shortened(found: re.Match[str]) -> str:
    half = _LONGEST_WORD // 4
    return f"{found[0][:half]} ... {found[0][-half:]}"
