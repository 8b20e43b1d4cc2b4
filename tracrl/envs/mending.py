"""Ways to import a package that was written for other versions of what it imports."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType


def register_without_init(package: str) -> None:
    """Make a package known without running its ``__init__``, so that its modules can be imported one by one."""
    if package not in sys.modules:
        spec = importlib.util.find_spec(package)
        assert spec is not None, f"{package} is not installed"
        sys.modules[package] = importlib.util.module_from_spec(spec)


@contextmanager
def stand_ins(modules: Mapping[str, ModuleType]) -> Iterator[None]:
    """Let imports inside find these modules; afterwards nobody else does."""
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
