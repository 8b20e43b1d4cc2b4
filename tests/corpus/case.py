"""A case: what lies there, what is typed, what must come of it; and how it is tried."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tests.corpus.server import wait_for

ROOT = Path(__file__).parents[2]
LONGEST_LINE = 1000
START = "import sys; sys.path.pop(0); from tracrl.cli import main; sys.exit(main())"  # as the installed script does
Expected = Literal["works", "refused", "usage", "either", "stopped"]
STATUS: dict[Expected, tuple[int, ...]] = {
    "works": (0,),
    "refused": (1,),
    "usage": (2,),
    "either": (0, 1),
    "stopped": (130, 143),
}


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    group: str
    name: str
    command: str | Sequence[str | bytes]
    expected: Expected = "refused"
    says: str = ""
    """a regular expression that what is printed must match, with all white space as single blanks"""
    make: Callable[[Path], Any] | None = None
    """makes the files in an empty folder"""
    takes: tuple[str, ...] = ()
    """materials that are copied into the folder first"""
    writes: tuple[str, ...] = ()
    """patterns of files that the command may add or change"""
    env: Mapping[str, str | None] = field(default_factory=dict)
    seconds: float = 60.0
    """it must be over by then"""
    own_process: bool = False
    """started as a user starts it, where the start itself matters"""
    shell: str = "exec {}"
    """how the command is called, for those with a process of their own"""
    during: Callable[[subprocess.Popen[bytes], Path], Any] | None = None
    """what happens while it runs, for those with a process of their own"""
    around: Callable[[Path], contextlib.AbstractContextManager[Mapping[str, str]]] | None = None
    """what is there while it runs, such as a server; gives further variables"""
    path: tuple[str, ...] = ()
    """folders that Python searches first"""
    user: int | None = None
    """run by this user, where the tests run as root"""

    @property
    def words(self) -> list[str | bytes]:
        return shlex.split(self.command) if isinstance(self.command, str) else list(self.command)


@dataclass(frozen=True)
class Outcome:
    """What came of a case."""

    case: Case
    problems: tuple[str, ...]
    said: str
    took: float


class Bench:
    """Tries cases, each in a folder of its own below ``base``."""

    def __init__(self, base: Path):
        self.base = base
        self.materials = base / "materials"
        self._server: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self.base.mkdir(parents=True, exist_ok=True)
        environment = self._environment(self.base / "server") | {"MPLCONFIGDIR": str(self.base / "matplotlib")}
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.corpus.server"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.materials.mkdir()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._server is not None
        assert self._server.stdin is not None
        self._server.stdin.close()
        self._server.wait(timeout=30)
        shutil.rmtree(self.base, ignore_errors=True)

    def tried(self, case: Case) -> Outcome:
        base = self.base / re.sub(r"\W+", "-", f"{case.group}-{case.name}")[:100]
        folder = base / "work"
        folder.mkdir(parents=True)
        try:
            for name in case.takes:
                source = self._material(name)
                (shutil.copytree if source.is_dir() else shutil.copy2)(source, folder / name)
            if case.make is not None:
                case.make(folder)
            if case.user is not None and os.geteuid() == 0:
                _give(base, case.user)
            before = _tree(folder)
            with case.around(folder) if case.around else contextlib.nullcontext({}) as more:
                environment = {**case.env, **more}
                answer = (
                    self._own(case, base, environment) if case.own_process else self._asked(case, base, environment)
                )
            out, err = ((base / name).read_bytes().decode(errors="replace") for name in ("out", "err"))
            problems = [*_judged(case, answer, out, err), *_changes(case, before, _tree(folder))]
            for name in ("tmp", "home"):
                problems += [
                    f"left behind in {name}: {path}" for path in _tree(base / name) if not _allowed(case, path)
                ]
            return Outcome(case, tuple(problems), f"{out}{err}", answer["took"])
        finally:
            with contextlib.suppress(OSError):
                subprocess.run(["chmod", "-R", "u+rwX", str(base)], check=False, stderr=subprocess.DEVNULL)
            shutil.rmtree(base, ignore_errors=True)

    def run(self, folder: Path, *words: object) -> str:
        """A command that must work, for the materials."""
        base = folder / "aside"
        base.mkdir()
        case = Case("materials", "", [str(word) for word in words], seconds=300)
        answer = self._asked(case, base, {}, folder)
        said = (base / "out").read_text() + (base / "err").read_text()
        shutil.rmtree(base)
        assert answer["status"] == 0, said
        return said

    def _material(self, name: str) -> Path:
        from tests.corpus.materials import make_material

        if not (self.materials / name).exists():
            make_material(self, self.materials, name)
        return self.materials / name

    def _asked(
        self, case: Case, base: Path, environment: Mapping[str, str | None], folder: Path | None = None
    ) -> dict[str, Any]:
        assert self._server is not None
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        request = {
            "folder": str(folder or base / "work"),
            "out": str(base / "out"),
            "err": str(base / "err"),
            "words": [os.fsencode(word).hex() for word in [*case.words, "--debug"]],
            "env": {**self._environment(base), **environment},
            "seconds": case.seconds,
            "path": list(case.path),
            "user": case.user if os.geteuid() == 0 else None,
        }
        print(json.dumps(request), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())

    def _own(self, case: Case, base: Path, environment: Mapping[str, str | None]) -> dict[str, Any]:
        chosen = {**self._environment(base), "MPLCONFIGDIR": str(self.base / "matplotlib"), **environment}
        called = b" ".join(
            shlex.quote(os.fsdecode(word)).encode(errors="surrogateescape")
            for word in [sys.executable, "-c", START, *case.words, "--debug"]
        )
        command = case.shell.encode().replace(b"{}", called)
        with (base / "out").open("wb") as out, (base / "err").open("wb") as err:
            process = subprocess.Popen(
                [b"/bin/sh", b"-c", command],
                cwd=base / "work",
                env={k: v for k, v in chosen.items() if v is not None},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
            if case.during is not None:
                case.during(process, base / "work")
            answer = wait_for(process.pid, case.seconds)
        process.returncode = 0  # wait_for has waited
        return answer

    def _environment(self, base: Path) -> dict[str, str | None]:
        for name in ("tmp", "home"):
            (base / name).mkdir(parents=True, exist_ok=True)
        kept = {
            k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
        }
        return {
            **kept,
            "HOME": str(base / "home"),
            "TMPDIR": str(base / "tmp"),
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "CUDA_VISIBLE_DEVICES": "",
        }


def _give(base: Path, user: int) -> None:
    for name in ("tmp", "home"):
        (base / name).mkdir(exist_ok=True)
    for path in [str(base), *_walk(str(base))]:
        os.chown(path, user, user, follow_symlinks=False)


def _judged(case: Case, answer: Mapping[str, Any], out: str, err: str) -> Iterator[str]:
    """What is wrong with an answer."""
    status = answer["status"]
    if status is None:
        yield f"not over after {case.seconds:g} s"
    elif status not in STATUS[case.expected]:
        yield f"status {status}, expected {case.expected}"
    if answer["left"]:
        yield "a process of it goes on"
    if "Traceback (most recent" in out + err:
        yield "a traceback"
    if not re.search(case.says, " ".join(f"{out} {err}".split())):
        yield f"does not say {case.says!r}"
    lines = [line for line in err.splitlines() if line.strip()]
    if status in (1, 130, 143):
        sentences = [line for line in lines if line.startswith("tracrl: ")]
        if len(sentences) != 1:
            yield f"{len(sentences)} sentences"
        if strange := [line for line in lines if not line.startswith(("tracrl: ", "note: "))]:
            yield f"also says {strange[0]!r:.200}"
    if any(len(line) > LONGEST_LINE for line in lines):
        yield "a sentence that is too long"


def _changes(case: Case, before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    for path in before.keys() | after.keys():
        if before.get(path) != after.get(path) and not _allowed(case, path):
            what = "left" if path not in before else "removed" if path not in after else "changed"
            yield f"{what}: {path}"


def _allowed(case: Case, path: str) -> bool:
    # torch makes a folder for what it compiles as soon as it is asked to.
    return any(fnmatch(path, pattern) for pattern in (*case.writes, "torchinductor_*"))


def _tree(folder: Path) -> dict[str, str]:
    """Each path below a folder and what is there."""
    return {os.path.relpath(path, folder): _content(path) for path in _walk(str(folder))}


def _walk(folder: str) -> Iterator[str]:
    for entry in os.scandir(folder):
        yield entry.path
        if entry.is_dir(follow_symlinks=False):
            with contextlib.suppress(PermissionError):
                yield from _walk(entry.path)


def _content(path: str) -> str:
    mode = os.lstat(path).st_mode
    if stat.S_ISLNK(mode):
        return f"-> {Path(path).readlink()}"
    if stat.S_ISREG(mode):
        return hashlib.blake2b(Path(path).read_bytes()).hexdigest()
    return str(stat.S_IFMT(mode))
