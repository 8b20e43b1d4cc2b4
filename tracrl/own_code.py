"""Code of one's own, from a file that a person named: never from a name that was read out of a file.

A file is loaded by its path, so that it need not be installed and nothing that is called like it can take its place.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import zlib
from pathlib import Path
from types import ModuleType
from typing import Any

from tracrl.errors import TracrlError

_FILES: dict[str, Path] = {}
"""the modules that were loaded here, by their names"""


def find(name: str, example: str) -> tuple[Any, str]:
    """What ``module:Name`` or ``file.py:Name`` means in the current folder, and its name for any other folder."""
    module_name, _, wanted = name.rpartition(":")
    if not module_name or not wanted:
        raise TracrlError(f"{name!r} names nothing to import: expected module:Name, such as {example}.")
    by_path = module_name.endswith(".py") or "/" in module_name
    path = Path.cwd() / (module_name if by_path else module_name.replace(".", "/"))
    path = path if path.suffix == ".py" else path.with_name(path.name + ".py")
    in_file = path.is_file()
    try:
        module = load_file(path) if in_file else importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if in_file or error.name != module_name.partition(".")[0]:
            raise TracrlError(f"{name} needs the module {error.name!r}, which is not installed.") from error
        raise TracrlError(
            f"{name}: there is neither a file {path} nor an installed module {module_name!r}; run the command in the "
            "file's folder, or write path/to/file.py:Name."
        ) from error
    except Exception as error:
        raise TracrlError(f"{name} cannot be imported: {type(error).__name__}: {error}") from error
    if not hasattr(module, wanted):
        raise TracrlError(f"{name}: {path if in_file else module_name} has no {wanted!r}.")
    return getattr(module, wanted), f"{path.resolve()}:{wanted}" if in_file else name


def load_file(path: Path) -> ModuleType:
    """The module in this very file. Modules beside it can be imported too, behind all others."""
    path = path.resolve()
    loaded = next((sys.modules[name] for name, file in _FILES.items() if file == path and name in sys.modules), None)
    if loaded is not None:
        return loaded
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    name = path.stem
    known = importlib.util.find_spec(name)
    if known is not None and known.origin != str(path):
        name = f"{name}_{zlib.crc32(str(path).encode()):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for the types of their fields
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    _FILES[name] = path
    return module


def file_of(kind: type) -> Path | None:
    """The file that a class was loaded from here."""
    return _FILES.get(kind.__module__)


def remade(path: str, name: str, state: dict[str, Any]) -> Any:
    """An object of a class in a file, in another process than the one that sent it."""
    kind = getattr(load_file(Path(path)), name)
    made = kind.__new__(kind)
    made.__dict__.update(state)
    return made
