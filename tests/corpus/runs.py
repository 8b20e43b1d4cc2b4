"""Run directories whose files were edited, cut off, exchanged: one of them never keeps the others from a report."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.corpus.case import Case, Expected
from tests.corpus.policies import RESUME

WRITES = ("report", "report/*")
BAD = "ball-run"
GOOD = "other-run"
# Logs may be empty: then there are no curves. A folder without a config.json is no run.
FINE = ("metrics.csv empty", "evaluations.csv empty", "config.json a link to itself")


def cases() -> Iterator[Case]:
    for name, make in _changes():
        yield Case(
            "runs", f"report beside a good one: {name}", f"report {BAD} {GOOD} --out report", "works",
            "" if name in FINE else BAD, _sealless(make), (BAD, GOOD), WRITES,
        )  # fmt: skip
    for name, make in list(_changes())[::4]:
        fine = name in FINE
        yield Case(
            "runs", f"report of it alone: {name}", f"report {BAD} --out report", "works" if fine else "refused",
            "" if fine else BAD, _sealless(make), (BAD,), WRITES if fine else (),
        )  # fmt: skip
    for name, make in list(_changes())[::3]:
        yield Case(
            "runs", f"evaluate: {name}", f"evaluate {BAD} --episodes 1 --workers 1", "either", "",
            _sealless(make), (BAD,),
        )  # fmt: skip
    yield from _sealed()
    yield from _resumed()
    yield from _folders()


def _sealless(make: Callable[[Path], Any]) -> Callable[[Path], Any]:
    """Without the checksums, so that what is wrong is found where it is and not by them."""

    def made(folder: Path) -> None:
        for seal in (*(folder / BAD).glob("seal.json"), *(folder / BAD).glob("checksums.json")):
            seal.unlink()
        make(folder / BAD)

    return made


def _changes() -> Iterator[tuple[str, Callable[[Path], Any]]]:
    for file in ("config.json", "scores.json", "metrics.csv", "evaluations.csv"):
        yield f"{file} empty", lambda run, file=file: (run / file).write_text("")
        yield f"{file} binary", lambda run, file=file: (run / file).write_bytes(bytes(range(256)) * 9)
        yield f"{file} a folder", lambda run, file=file: ((run / file).unlink(), (run / file).mkdir())
        yield f"{file} a link to itself", lambda run, file=file: ((run / file).unlink(), (run / file).symlink_to(file))
    for file in ("config.json", "scores.json"):
        for text in ("null", "[]", "7", '"x"', "{}", "{", '{"method": 1}', "[" * 100_000, "NaN"):
            yield f"{file} is {text:.12}", lambda run, file=file, text=text: (run / file).write_text(text)

    def edited(file: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
        def make(run: Path) -> None:
            content = json.loads((run / file).read_text())
            change(content)
            (run / file).write_text(json.dumps(content))

        return make

    for key, values in {
        "method": [None, 7, "nonsense", "[bold]"],
        "settings": [None, [], {"updates": "x"}],
        "limits": [None, 7, ["a"], []],
        "seeds": [None, ["a"], []],
        "task": [7, [], "BalRun"],
        "data": [None, []],
        "versions": [None, 7],
        "identity": [None, "0" * 16],
    }.items():
        for value in values:
            yield (
                f"config's {key} is {value!r}",
                edited("config.json", lambda c, key=key, value=value: c.__setitem__(key, value)),
            )
    for key in ("returns", "costs", "lengths", "limits", "task"):
        for value in (None, 7, "x", [], [[]], [[1.0], [2.0, 3.0]], [[float("nan")], [1.0]], {"a": 1}):
            if (key, value) not in (("task", None),):
                yield (
                    f"scores' {key} is {value!r}",
                    edited("scores.json", lambda c, key=key, value=value: c.__setitem__(key, value)),
                )

    def lines(file: str, change: Callable[[list[str]], list[str]]) -> Callable[[Path], None]:
        def make(run: Path) -> None:
            (run / file).write_text("\n".join(change((run / file).read_text().splitlines())) + "\n")

        return make

    for file in ("metrics.csv", "evaluations.csv"):
        yield f"{file} other columns", lines(file, lambda text: ["a,b,c", *text[1:]])
        yield f"{file} text for a step", lines(file, lambda text: [*text[:1], *("x" + line for line in text[1:])])
        yield f"{file} a huge cell", lines(file, lambda text: [*text, '"' + "x" * 200_000 + '"' + text[-1]])
        yield f"{file} zeros in it", lines(file, lambda text: [*text, "\0\0\0"])


def _sealed() -> Iterator[Case]:
    """With their checksums: an edit is noticed."""
    for file in ("config.json", "scores.json", "metrics.csv", "evaluations.csv", "policy.safetensors"):

        def make(folder: Path, file: str = file) -> None:
            content = bytearray((folder / BAD / file).read_bytes())
            content[len(content) // 2] ^= 1
            (folder / BAD / file).write_bytes(content)

        yield Case(
            "runs", f"one bit of {file}", f"report {BAD} {GOOD} --out report", "works", BAD, make, (BAD, GOOD), WRITES
        )
    for text in ("null", "[]", "{", '{"files": 7}'):

        def spoil(folder: Path, text: str = text) -> None:
            for seal in (*(folder / BAD).glob("seal.json"), *(folder / BAD).glob("checksums.json")):
                seal.write_text(text)

        yield Case(
            "runs", f"checksums are {text}", f"report {BAD} {GOOD} --out report", "works", BAD, spoil, (BAD, GOOD),
            WRITES,
        )  # fmt: skip
    # Training stops before it would write such a number: the file was edited.
    for runs, expected in ((BAD, "refused"), (f"{BAD} {GOOD}", "works")):
        yield Case(
            "runs", f"infinite losses: {expected}", f"report {runs} --out report", expected, "metrics.csv.*loss",
            _sealless(lambda run: _spoil_losses(run / "metrics.csv")), (BAD, GOOD),
            WRITES if expected == "works" else (),
        )  # fmt: skip


def _spoil_losses(path: Path) -> None:
    header, *rows = path.read_text().splitlines()
    loss = header.split(",").index("loss")
    words = [row.split(",") for row in rows]
    for number, row in enumerate(words):
        row[loss] = ("inf", "nan", "-inf")[number % 3]
    path.write_text("\n".join([header, *map(",".join, words)]) + "\n")


def _resumed() -> Iterator[Case]:
    takes = ("own.hdf5", "stopped-run")
    for file in ("config.json", "metrics.csv", "claim.json"):
        for name, content in (("empty", b""), ("binary", bytes(range(256))), ("null", b"null"), ("a list", b"[]")):
            if file == "metrics.csv" and name in ("empty", "null", "a list"):
                continue  # a log without whole lines: training goes on, for a minute
            if file == "claim.json":
                continue  # nobody's claim: taken over after a minute
            yield Case(
                "runs", f"resume: {file} {name}", RESUME, "refused", file,
                lambda f, file=file, content=content: (f / "stopped-run" / file).write_bytes(content), takes,
            )  # fmt: skip
    yield Case(
        "runs", "resume: metrics.csv a folder", RESUME, "refused", "metrics.csv",
        lambda f: ((f / "stopped-run/metrics.csv").unlink(), (f / "stopped-run/metrics.csv").mkdir()), takes,
    )  # fmt: skip
    yield Case("runs", "not resumed", RESUME.replace("--resume", ""), "refused", "go on with --resume", None, takes)


def _folders() -> Iterator[Case]:
    def case(name: str, make: Callable[[Path], Any], expected: Expected = "works", says: str = "Page: report") -> Case:
        return Case("runs", name, "report runs --out report", expected, says, make, (GOOD,), (*WRITES,))

    def beside(change: Callable[[Path], Any]) -> Callable[[Path], None]:
        def make(folder: Path) -> None:
            (folder / "runs").mkdir()
            (folder / GOOD).rename(folder / "runs" / GOOD)
            change(folder / "runs")

        return make

    yield case("a link to its own folder", beside(lambda runs: (runs / "loop").symlink_to(".")))
    yield case("a link to the folder above", beside(lambda runs: (runs / "loop").symlink_to("..")))
    yield case("two links to themselves", beside(lambda r: ((r / "a").symlink_to("b"), (r / "b").symlink_to("a"))))
    yield case("links in a ring", beside(_ring))
    yield case("many links to the same", beside(lambda r: [(r / f"l{i}").symlink_to(".") for i in range(40)]))
    yield case("folders in folders", beside(lambda runs: (runs / "/".join("d" * 900)).mkdir(parents=True)))
    yield case("a pipe beside it", beside(lambda runs: os.mkfifo(runs / "pipe")))
    yield case("a link to nothing", beside(lambda runs: (runs / "gone").symlink_to("nothing")))
    yield case("nothing in it", lambda folder: (folder / "runs").mkdir(), "refused", "No finished run|runs")
    yield case("only a link to itself", lambda folder: (folder / "runs").symlink_to("runs"), "refused", "runs")


def _ring(runs: Path) -> None:
    for here, there in (("one", "two"), ("two", "three"), ("three", "one")):
        (runs / here).mkdir()
        (runs / here / "next").symlink_to(f"../{there}")
