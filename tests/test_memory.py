from __future__ import annotations

import subprocess
import sys

from tracrl.memory import available_memory


def test_memory_is_what_the_machine_says() -> None:
    assert 2**26 < available_memory() < 2**45


def test_memory_is_what_ulimit_leaves() -> None:
    script = (
        "import resource; from tracrl.memory import available_memory\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**30, 2**30)); print(available_memory())"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 2**30
