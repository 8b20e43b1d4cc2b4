"""Names, terminals, folders and outputs that are unlike a developer's own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tests.corpus.case import Case, Expected
from tests.corpus.data_files import TRAIN

ODD: dict[str, str | bytes] = {
    "markup": "[bold]x[red].hdf5",
    "open markup": "[link=[.hdf5",
    "TeX": "$x_{$.hdf5",
    "a dollar pair": "a$b$c.hdf5",
    "no UTF-8": b"\xff\xfe\x80.hdf5",
    "a line end": "a\nb.hdf5",
    "an escape": "a\x1b[2Jb.hdf5",
    "letters of everywhere": "é中Ω🎲.hdf5",
    "a blank": " .hdf5",
    "format signs": "%s{0}{}.hdf5",
    "quotes": "'\"`.hdf5",
    "a backslash": "a\\b.hdf5",
    "as an option": "--out.hdf5",
    "255 bytes": "x" * 250 + ".hdf5",
    "right to left": "\u202eabc.hdf5",
}
LONG_NAME = "x" * 300
LONG_PATH = "/".join(["y" * 200] * 40)


def cases() -> Iterator[Case]:
    yield from _odd_names()
    yield from _too_long()
    yield from _no_permission()
    yield from _homes()
    yield from _terminals()
    yield from _outputs()


def _odd_names() -> Iterator[Case]:
    for said, name in ODD.items():
        place = b"./" + os.fsencode(name)
        fits = "either" if said == "255 bytes" else "works"

        def make(folder: Path, name: str | bytes = name) -> None:
            shutil.move(folder / "own.hdf5", os.fsencode(folder) + b"/" + os.fsencode(name))

        takes = ("own.hdf5",)
        yield Case("names", f"data {said}: check", ["data", "check", place], "works", "in order", make, takes)
        yield Case("names", f"data {said}: inspect", ["data", "inspect", place], fits, "", make, takes, ("*.png",))
        words = [place if word == "X" else word for word in TRAIN.format("X").split()]
        yield Case("names", f"data {said}: train", words, "works", "", make, takes, ("run", "run/*"))
        default = [word for word in words if word not in ("--out", "run")]
        yield Case("names", f"data {said}: train, default", default, fits, "", make, takes, ("runs", "runs/*"))
        missing = ["data", "check", place]
        yield Case("names", f"data {said}: missing", missing, "refused", "There is no data file at")
        out = [*TRAIN.format("own.hdf5").split()[:-1], place]
        patterns = ("*",) if said != "255 bytes" else ("x*",)
        yield Case("names", f"run {said}: train", out, "works", "", None, takes, patterns)

        def move_run(folder: Path, name: str | bytes = name) -> None:
            shutil.move(folder / "other-run", os.fsencode(folder) + b"/" + os.fsencode(name))

        report = ["report", place, "--out", "report"]
        yield Case(
            "names", f"run {said}: report", report, "works", "", move_run, ("other-run",), ("report", "report/*")
        )


def _too_long() -> Iterator[Case]:
    takes = ("own.hdf5", "ball-run")
    for said, path in (("name", LONG_NAME), ("path", LONG_PATH)):
        for words in (
            f"data check {path}.hdf5", f"data check {path}", f"data inspect {path}.hdf5",
            f"data inspect own.hdf5 --out {path}.png", f"data inspect own.hdf5 --out {path}",
            f"train bc-all --data {path}.hdf5 --limits 4", f"evaluate {path}", f"report {path}",
            f"train bc-all --data own.hdf5 --limits 4 --no-eval --updates 2 --out {path}",
            f"train bc-all {path}", f"train {path} BallRun", f"evaluate ball-run --task {path}",
            f"report ball-run --out {path}", f"collect BallRun --out {path} --steps 100 --episodes 2 --workers 1",
            f"study main --tasks BallRun --methods bc-all --out {path}", f"study main --tasks {path}",
            f"data fetch BallRun --out {path}", f"collect --env {path}", f"sims install {path}",
            f"evaluate ball-run --video {path}.gif",
        ):  # fmt: skip
            short = words.replace(path, f"LONG-{said}")
            yield Case("names", short, words, "refused", "", None, takes, env={"TRACRL_DATA_URL": "http://127.0.0.1:9"})


def _no_permission() -> Iterator[Case]:
    """As a user who may not: nobody, where the tests run as root."""

    def closed(*paths: str, mode: int = 0) -> object:
        return lambda folder: [(folder / path).chmod(mode) for path in paths]

    rows: list[tuple[str, str, object, str]] = [
        ("data", "data check own.hdf5", closed("own.hdf5"), "own.hdf5"),
        ("data to train on", TRAIN.format("own.hdf5"), closed("own.hdf5"), "own.hdf5"),
        ("folder of the data", "data check own-run/own.hdf5", closed("own-run"), "own-run"),
        ("run", "evaluate own-run", closed("own-run"), "own-run"),
        ("policy", "evaluate own-run", closed("own-run/policy.safetensors"), "policy.safetensors"),
        ("run to report", "report own-run --out report", closed("own-run"), "own-run"),
        ("config to report", "report ball-run --out report", closed("ball-run/config.json"), "config.json"),
        ("scores to report", "report ball-run --out report", closed("ball-run/scores.json"), "scores.json"),
        ("folder to inspect into", "data inspect own.hdf5", closed(".", mode=0o555), "own-scatter.png"),
        ("folder to train into", TRAIN.format("own.hdf5"), closed(".", mode=0o555), "run"),
        ("folder to report into", "report ball-run --out report", closed(".", mode=0o555), "report"),
        ("folder to collect into", "collect BallRun", closed(".", mode=0o555), "BallRun"),
        ("folder to study into", "study main --tasks BallRun --methods bc-all", closed(".", mode=0o555), "runs"),
        ("folder to fetch into", "data fetch BallRun --out own-run", closed("own-run", mode=0o555), "own-run"),
    ]
    for name, words, make, says in rows:
        takes = ("own.hdf5", "own-run", "ball-run")
        yield Case("names", f"no permission: {name}", words, "refused", says, make, takes, user=65534)  # type: ignore[arg-type]
    yield Case(
        "names", "no permission: one of two runs", "report ball-run other-run --out report", "works", "ball-run",
        closed("ball-run/config.json"), ("ball-run", "other-run"), ("report", "report/*"), user=65534,  # type: ignore[arg-type]
    )  # fmt: skip


def _homes() -> Iterator[Case]:
    homes: dict[str, str | None] = {
        "none": None, "empty": "", "missing": "/missing/home", "a file": "/dev/null", "relative": "here",
        "long": "/" + LONG_PATH,
    }  # fmt: skip
    for said, home in homes.items():
        for words, expected in (
            ("tasks", "works"), ("data inspect BallRun --out x.png", "works"), ("data check AntCircle", "refused"),
            ("data fetch AntCircle", "refused"), ("train bc-all BallRun --no-eval --updates 2 --out run", "works"),
        ):  # fmt: skip
            typed: Expected = expected  # type: ignore[assignment]
            env = {"HOME": home, "TRACRL_DATA_URL": "http://127.0.0.1:9"}
            # An id that no user has: without $HOME, there is no other way to find one.
            yield Case(
                "names", f"home {said}: {words}", words, typed, "", env=env, writes=("x.png", "run", "run/*", "here*"),
                user=54321 if home is None else None,
            )  # fmt: skip
    for said, place in (("missing", "/missing"), ("a file", "/dev/null"), ("long", LONG_PATH), ("~", "~nobody-here/x")):
        env = {"DSRL_DATASET_DIR": place}
        expected: Expected = "either" if said == "~" else "works"
        yield Case("names", f"data folder {said}: tasks", "tasks", expected, "", env=env)
        yield Case("names", f"data folder {said}: check", "data check AntCircle", "refused", "AntCircle|home", env=env)
    yield Case("names", "data of a user who is not", "data check ~nobody-here/x.hdf5", "refused", "nobody-here")
    yield Case("names", "run of a user who is not", "evaluate ~nobody-here/x", "refused", "nobody-here")


def _terminals() -> Iterator[Case]:
    takes = ("own.hdf5", "ball-run")
    terminals: dict[str, dict[str, str | None]] = {
        "ascii": {"PYTHONIOENCODING": "ascii"},
        "strict ascii": {"PYTHONIOENCODING": "ascii:strict"},
        "locale C": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        "latin-1": {"PYTHONIOENCODING": "latin-1:strict"},
        "one column": {"COLUMNS": "1", "TERM": "dumb"},
    }
    commands: list[tuple[str, Expected]] = [
        ("--help", "works"),
        ("methods", "works"),
        ("data inspect own.hdf5 --limits 4", "works"),
        ("report ball-run --out report", "works"),
        ("evaluate ball-run --episodes 1 --workers 1", "works"),
        ("train trac --data own.hdf5 --limits 4 --hidden 8 --batch-size 8 --updates 4 --out run", "works"),
        ("train trac --help", "works"),
        ("train trac BallRun --alpah 3", "usage"),
        ("study main --tasks BallRun --methods trac --plan", "works"),
        ("foo", "usage"),
    ]
    for said, env in terminals.items():
        for words, expected in commands:
            if said in ("strict ascii", "latin-1", "one column") and words.split()[0] not in ("methods", "data", "foo"):
                continue
            yield Case(
                "names", f"terminal {said}: {words:.30}", words, expected, takes=takes, env=env, own_process=True,
                writes=("*.png", "report", "report/*", "run", "run/*", "runs", "runs/*"),
            )  # fmt: skip
    yield Case(
        "names", "terminal ascii: a name of everywhere", ["data", "check", "é中🎲.hdf5"], "refused", r"u4e2d",
        own_process=True, env={"PYTHONIOENCODING": "ascii"},
    )  # fmt: skip


def _outputs() -> Iterator[Case]:
    takes = ("own.hdf5", "ball-run")
    words = {
        "--help": "usage", "--version": "tracrl", "tasks": "BallRun", "methods": "TraC", "train trac --help": "alpha",
        "data inspect own.hdf5 --limits 4": "", "data check own.hdf5": "", "report ball-run --out report": "",
        "train bc-all --data own.hdf5 --limits 4 --hidden 8 --batch-size 8 --updates 4 --out run": "",
        "evaluate ball-run --episodes 1 --workers 1": "",
    }  # fmt: skip
    for command in words:

        def case(name: str, shell: str, expected: Expected, says: str = "", command: str = command) -> Case:
            return Case(
                "names", f"{name}: {command:.30}", command, expected, says, takes=takes, own_process=True, shell=shell,
                writes=("*.png", "report", "report/*", "run", "run/*"),
            )  # fmt: skip

        yield case("output full", "exec {} > /dev/full", "refused", "Standard output cannot be written")
        yield case("output closed", "exec {} >&-", "works")
        if command in ("--help", "tasks", "methods"):
            yield case("all closed", "exec {} <&- >&- 2>&-", "works")
            yield case("errors full", "exec {} 2> /dev/full", "works")
            yield case("reader gone", "{} | true", "works")
    yield Case("names", "errors full: foo", "foo", "usage", own_process=True, shell="exec {} 2> /dev/full")
    yield Case("names", "errors closed: foo", "foo", "usage", own_process=True, shell="exec {} 2>&-")
