"""Files of episodes, broken in every way that HDF5 knows, and some that are odd but fine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from tests.conftest import make_small_data
from tests.corpus.case import Case, Expected

Arrays = dict[str, Any]
NAMES = ("observations", "actions", "rewards", "costs", "terminals", "timeouts")
ELSEWHERE = "lies in another file"
TRAIN = "train bc-all --data {} --limits 4 --updates 2 --hidden 4 --batch-size 4 --no-eval --out run"


def arrays() -> Arrays:
    data = make_small_data()
    ends = data.offsets[1:] - 1
    timeouts = np.zeros(data.rows, bool)
    timeouts[ends] = True
    return {
        "observations": data.observations.copy(),
        "actions": data.actions.copy(),
        "rewards": data.rewards.copy(),
        "costs": data.costs.copy(),
        "terminals": np.zeros(data.rows, bool),
        "timeouts": timeouts,
    }


def write(path: Path, content: Arrays, attributes: Arrays | None = None) -> None:
    with h5py.File(path, "w") as file:
        for key, value in content.items():
            file[key] = value
        for key, value in (attributes or {}).items():
            file.attrs[key] = value


def cases() -> Iterator[Case]:
    yield from _from(_arrays())
    yield from _from(_attributes())
    yield from _from(_files())
    yield from _damaged()
    yield from _options()


Row = tuple[str, Expected, str, Callable[[Path], Any]]


def _from(rows: Iterator[Row]) -> Iterator[Case]:
    """Each file is checked; every second one is also inspected, and every second one trained on."""
    for number, (name, expected, says, make) in enumerate(rows):
        yield Case("data", f"{name}: check", "data check bad.hdf5", expected, says, _at(make))
        if number % 2:
            yield Case(
                "data", f"{name}: inspect", "data inspect bad.hdf5", expected, says, _at(make), writes=("*.png",)
            )
        else:
            words = TRAIN.format("bad.hdf5")
            yield Case("data", f"{name}: train", words, expected, says, _at(make), writes=("run", "run/*"))


def _at(make: Callable[[Path], Any]) -> Callable[[Path], Any]:
    return lambda folder: make(folder / "bad.hdf5")


def _changed(change: Callable[[Arrays], Any]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        content = arrays()
        change(content)
        write(path, content)

    return make


def _put(key: str, index: Any, value: Any, dtype: Any = None) -> Callable[[Path], None]:
    def change(content: Arrays) -> None:
        content[key] = content[key].astype(dtype or content[key].dtype)
        content[key][index] = value

    return _changed(change)


def _as(key: str, made: Callable[[Any], Any]) -> Callable[[Path], None]:
    return _changed(lambda content: content.__setitem__(key, made(content[key])))


def _arrays() -> Iterator[Row]:
    for key in NAMES[:4]:
        yield f"no {key}", "refused", rf"'{key}'.* is missing", _changed(lambda content, key=key: content.pop(key))
    yield "no ends", "refused", "'terminals'", _changed(lambda c: (c.pop("terminals"), c.pop("timeouts")))
    for key, typed in (("costs", "cost"), ("observations", "obsevations"), ("timeouts", "timeout")):
        yield (
            f"{key} misspelt",
            "refused",
            f"rename .*{typed}",
            _changed(lambda c, key=key, typed=typed: c.__setitem__(typed, c.pop(key))),
        )
    for key in NAMES:
        yield f"{key} one row short", "refused", key, _as(key, lambda a: a[:-1])
    for key in ("observations", "actions"):
        yield f"{key} flat", "refused", f"'{key}' has shape", _as(key, lambda a: a[:, 0])
        yield f"{key} of rank 3", "refused", f"'{key}' has shape", _as(key, lambda a: a[:, :, None])
        yield f"{key} without columns", "refused", f"'{key}' has shape", _as(key, lambda a: a[:, :0])
    for key in ("rewards", "costs", "timeouts"):
        yield f"{key} two columns", "refused", f"'{key}' has shape", _as(key, lambda a: np.stack([a, a], 1))
        yield f"{key} a scalar", "refused", key, _as(key, lambda a: a[0])
    yield "rewards a column", "works", "", _as("rewards", lambda a: a[:, None])
    yield "no rows", "refused", "no rows", _changed(lambda c: c.update({k: v[:0] for k, v in c.items()}))
    yield "a single row", "either", "", _changed(lambda c: c.update({k: v[-1:] for k, v in c.items()}))
    for key in ("observations", "actions", "rewards", "costs"):
        for value in (np.nan, np.inf, -np.inf):
            yield f"{key} {value}", "refused", f"'{key}' has NaN or infinity", _put(key, 7, value)
        yield f"{key} 1e39", "refused", f"'{key}'", _put(key, 7, 1e39, np.float64)
        yield f"{key} as text", "refused", f"'{key}'", _as(key, lambda a: a.astype("S8"))
        yield f"{key} complex", "refused", f"'{key}'", _as(key, lambda a: a.astype(complex))
    yield "costs negative", "refused", "'costs' is negative in row 7", _put("costs", 7, -1.0)
    yield "costs 1e20", "refused", "'costs'", _put("costs", 0, 1e20, np.float64)
    yield "costs 1e30 as float32", "refused", "'costs'", _put("costs", 0, 1e30)
    yield "rewards 1e30", "refused", "'rewards'", _put("rewards", 0, 1e30)
    yield "observations 1e38", "either", "", _put("observations", 0, 1e38)
    yield "actions beyond the box", "refused", "leave the box", _put("actions", 7, 1.5)
    yield "actions 1e30", "refused", "leave the box", _put("actions", 7, 1e30)
    yield "timeouts NaN", "refused", "'timeouts'", _put("timeouts", 3, np.nan, np.float32)
    yield "timeouts 2", "either", "", _put("timeouts", 3, 2, np.int64)
    yield "terminals as text", "refused", "'terminals'", _as("terminals", lambda a: a.astype("S5"))
    yield "no episode ends", "refused", "end", _as("timeouts", lambda a: a * False)
    yield "the last episode does not end", "either", "", _put("timeouts", -1, False)
    yield "observations bytes", "works", "", _as("observations", lambda a: np.clip(a * 9 + 99, 0, 255).astype(np.uint8))
    yield "rewards whole numbers", "works", "", _as("rewards", lambda a: np.round(a * 10).astype(np.int64))
    yield "observations half", "works", "", _as("observations", lambda a: a.astype(np.float16))
    yield "observations big-endian", "works", "", _as("observations", lambda a: a.astype(">f8"))
    yield (
        "final_observations too few",
        "refused",
        "final_observations",
        _changed(lambda c: c.__setitem__("final_observations", np.zeros((3, 3)))),
    )
    yield (
        "next_observations too narrow",
        "refused",
        "next_observations",
        _changed(lambda c: c.__setitem__("next_observations", c["observations"][:, :2])),
    )
    yield (
        "next_observations NaN",
        "refused",
        "next_observations",
        _changed(lambda c: c.__setitem__("next_observations", c["observations"] * np.nan)),
    )
    yield "a stranger beside them", "works", "", _changed(lambda c: c.__setitem__("infos", np.zeros(5)))


def _attributes() -> Iterator[Row]:
    def having(name: str, value: Any) -> Callable[[Path], None]:
        return lambda path: write(path, arrays(), {name: value})

    for said, value in {
        "markup": "[bold red]x[/",
        "closing markup": "[/]",
        "TeX": "$\\frac{x}{0$",
        "a dollar": "US$ and $",
        "an escape": "a\x1b[2Jb",
        "a newline": "one\ntwo",
        "no UTF-8": np.void(b"\xff\xfe"),
        "bytes": b"\xff\xfe\xfd",
        "a path": "../../etc/passwd",
        "a number": 7,
        "NaN": np.nan,
        "a list": [1, 2, 3],
        "nothing": h5py.Empty("f"),
        "empty text": "",
        "long": "x" * 5000,
        "an object": '{"a": [1, {"b": null}]}',
        "complex": 1 + 2j,
        "compound": np.zeros((), np.dtype([("a", "i4"), ("b", "f8")])),
    }.items():
        for name in ("task", "made_by"):
            yield f"{name} is {said}", "either" if name == "task" else "works", "", having(name, value)
    yield "task of other sizes", "refused", "do not belong to BallRun", having("task", "BallRun")
    for said, low, high in (
        ("reversed", 1.0, -1.0),
        ("NaN", np.nan, 1.0),
        ("infinite", -np.inf, np.inf),
        ("of text", "low", "high"),
        ("of three", [-1.0, -1.0, -1.0], [1.0, 1.0, 1.0]),
        ("of nothing", h5py.Empty("f"), 1.0),
        ("of a matrix", np.full((2, 2), -1.0), np.ones((2, 2))),
        ("complex", -1 + 1j, 1 + 1j),
    ):
        yield (
            f"action box {said}",
            "either" if "nothing" in said else "refused",
            "",
            (lambda path, low=low, high=high: write(path, arrays(), {"action_low": low, "action_high": high})),
        )
    yield (
        "action box of whole numbers",
        "works",
        "",
        (lambda path: write(path, arrays(), {"action_low": -1, "action_high": 1})),
    )


def _files() -> Iterator[Row]:
    yield "empty", "refused", "bad.hdf5", lambda path: path.write_bytes(b"")
    yield "text", "refused", "bad.hdf5", lambda path: path.write_text("observations,actions\n1,2\n")
    yield "NumPy's", "refused", "bad.hdf5", lambda path: np.savez(path.open("wb"), **arrays())
    yield "only the signature", "refused", "bad.hdf5", lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n")
    yield "HDF5 without anything", "refused", "missing", lambda path: h5py.File(path, "w").close()
    yield "a folder", "refused", "bad.hdf5", lambda path: path.mkdir()
    yield "a pipe", "refused", "bad.hdf5", os.mkfifo
    yield "a link to itself", "refused", "bad.hdf5", lambda path: path.symlink_to(path.name)
    yield "a link to nothing", "refused", "bad.hdf5", lambda path: path.symlink_to("nothing.hdf5")
    yield (
        "a link to a whole one",
        "works",
        "",
        lambda path: (
            write(path.with_name("whole.h5"), arrays()),
            path.symlink_to("whole.h5"),
        ),
    )
    yield "a link to zeros without end", "refused", "bad.hdf5", lambda path: path.symlink_to("/dev/zero")

    def inside(change: Callable[[h5py.File, Path], Any]) -> Callable[[Path], None]:
        def make(path: Path) -> None:
            write(path, arrays())
            with h5py.File(path, "r+") as file:
                change(file, path)

        return make

    def replaced(key: str, **options: Any) -> Callable[[Path], None]:
        def change(file: h5py.File, path: Path) -> None:
            del file[key]
            file.create_dataset(key, **options)

        return inside(change)

    def linked(key: str, link: Callable[[Path], Any]) -> Callable[[Path], None]:
        def change(file: h5py.File, path: Path) -> None:
            del file[key]
            file[key] = link(path)

        return inside(change)

    rows = len(arrays()["costs"])
    yield (
        "a group for rewards",
        "refused",
        "rewards",
        inside(lambda file, _: (file.pop("rewards"), file.create_group("rewards"))),
    )
    for key in ("observations", "costs"):
        yield f"{key} null", "refused", key, replaced(key, data=h5py.Empty("f4"))
        yield (
            f"{key} compound",
            "refused",
            key,
            replaced(key, data=np.zeros(rows, np.dtype([("a", "f4"), ("b", "f4")]))),
        )
        yield f"{key} of words", "refused", key, replaced(key, data=["x"] * rows, dtype=h5py.string_dtype())
        yield f"{key} of references", "refused", key, replaced(key, shape=(rows,), dtype=h5py.ref_dtype)
        yield f"{key} of lists", "refused", key, replaced(key, shape=(rows,), dtype=h5py.vlen_dtype(np.float32))
        yield f"{key} opaque", "refused", key, replaced(key, data=np.zeros(rows, "V7"))
        yield (
            f"{key} 4 TB",
            "refused",
            "TiB|TB|GiB|GB|memory|rows",
            replaced(key, shape=(2**40, 3) if key == "observations" else (2**40,), dtype="f4", chunks=True),
        )
    yield "everything 20 GB", "refused", "GiB|GB|memory", _bomb
    yield (
        "costs of an enum",
        "either",
        "",
        replaced("costs", shape=(rows,), dtype=h5py.enum_dtype({"NO": 0, "YES": 1}, basetype="i1")),
    )
    yield "costs never written", "either", "", replaced("costs", shape=(rows,), dtype="f4", chunks=True)
    yield "link to nothing inside", "refused", "costs", linked("costs", lambda _: h5py.SoftLink("/nothing"))
    yield "link to itself inside", "refused", "costs", linked("costs", lambda _: h5py.SoftLink("/costs"))
    yield (
        "link to a file that is gone",
        "refused",
        "lies in another file",
        linked("costs", lambda _: h5py.ExternalLink("gone.h5", "c")),
    )
    yield "link to another file", "refused", ELSEWHERE, linked("costs", _to_another)
    yield "link to a pipe", "refused", ELSEWHERE, linked("costs", _to_pipe)
    yield (
        "link to a device",
        "refused",
        "lies in another file",
        linked("costs", lambda _: h5py.ExternalLink("/dev/zero", "c")),
    )
    yield "virtual, source gone", "refused", ELSEWHERE, _virtual
    yield (
        "stored outside, gone",
        "refused",
        "",
        replaced("costs", shape=(rows,), dtype="f4", external=[("gone.bin", 0, h5py.h5f.UNLIMITED)]),
    )
    yield "behind a block of text", "works", "", _user_block
    yield "compressed", "works", "", _compressed


def _bomb(path: Path) -> None:
    """Small in the file, 20 GB when read."""
    with h5py.File(path, "w") as file:
        rows = 200_000_000
        for key, value in arrays().items():
            shape = (rows, *value.shape[1:])
            file.create_dataset(key, shape, "f8" if value.dtype != bool else bool, chunks=True, compression="gzip")
        file["timeouts"][-1] = True


def _to_another(path: Path) -> h5py.ExternalLink:
    write(path.with_name("other.h5"), arrays())
    return h5py.ExternalLink("other.h5", "costs")


def _to_pipe(path: Path) -> h5py.ExternalLink:
    os.mkfifo(path.with_name("pipe.h5"))
    return h5py.ExternalLink("pipe.h5", "costs")


def _virtual(path: Path) -> None:
    content = arrays()
    costs = content.pop("costs")
    write(path, content)
    layout = h5py.VirtualLayout(shape=costs.shape, dtype="f4")
    layout[:] = h5py.VirtualSource("gone.h5", "costs", shape=costs.shape)
    with h5py.File(path, "r+") as file:
        file.create_virtual_dataset("costs", layout)


def _user_block(path: Path) -> None:
    with h5py.File(path, "w", userblock_size=512) as file:
        for key, value in arrays().items():
            file[key] = value


def _compressed(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for key, value in arrays().items():
            file.create_dataset(key, data=value, compression="lzf", shuffle=True, fletcher32=True, chunks=True)


def _damaged() -> Iterator[Case]:
    def cut(path: Path, share: float) -> None:
        write(path, arrays())
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])

    def flip(path: Path, seed: int) -> None:
        _compressed(path) if seed % 2 else write(path, arrays())
        content = bytearray(path.read_bytes())
        generator = np.random.default_rng(seed)
        # Half of them in the first bytes, where HDF5 keeps what it needs to find the rest.
        most = 4096 if seed % 4 < 2 else len(content)
        for place in generator.integers(0, most, size=8):
            content[place] ^= 1 << int(generator.integers(8))
        path.write_bytes(content)

    for percent in (1, 10, 50, 90, 99):
        yield Case(
            "data", f"cut at {percent} %", "data check bad.hdf5", "refused", "bad.hdf5",
            _at(lambda path, percent=percent: cut(path, percent / 100)),
        )  # fmt: skip
    for seed in range(24):
        yield Case(
            "data", f"bits flipped, {seed}", "data check bad.hdf5", "either", "bad.hdf5",
            _at(lambda path, seed=seed: flip(path, seed)),
        )  # fmt: skip


def _options() -> Iterator[Case]:
    rows: list[tuple[str, Expected, str]] = [
        ("data inspect own.hdf5 --limits nan", "refused", "--limits"),
        ("data inspect own.hdf5 --limits inf", "refused", "--limits"),
        ("data inspect own.hdf5 --limits -1", "refused", "--limits"),
        ("data inspect own.hdf5 --limits x", "usage", "limits"),
        ("data inspect own.hdf5 --x 101", "refused", "x"),
        ("data inspect own.hdf5 --x -1", "refused", "x"),
        ("data inspect own.hdf5 --x nan", "refused", "x"),
        ("data inspect own.hdf5 --y 101", "refused", "y"),
        ("data inspect own.hdf5 --y inf", "refused", "y"),
        ("data inspect own.hdf5 --x 60 --y 60", "either", ""),
        ("data inspect own.hdf5 --limits 0 1e9", "works", "no unsafe|unsafe"),
        ("data inspect own.hdf5 --out picture.jpg", "refused", "picture.jpg"),
        ("data inspect own.hdf5 --out own.hdf5", "refused", "own.hdf5"),
        ("data inspect own.hdf5 --out own.hdf5/x.png", "refused", "own.hdf5"),
        ("data inspect own.hdf5 --out deep/er/x.svg", "works", "deep/er/x.svg"),
        ("data inspect own.hdf5 --task BallRun", "refused", "do not belong to BallRun"),
        ("data inspect own.hdf5 --task BalRun", "refused", "did you mean BallRun"),
        ("data inspect own.hdf5 --action-low 2 --action-high 1", "refused", "box"),
        ("data inspect own.hdf5 --action-low nan", "refused", "box"),
        ("data inspect own.hdf5 --action-low 0", "refused", "leave the box"),
        ("data inspect own.hdf5 --action-low 0 --clip-actions", "works", ""),
        ("data inspect nothing.hdf5", "refused", "There is no data file at nothing.hdf5"),
        ("data inspect .", "refused", r"\."),
        ("data check /dev/null", "refused", "/dev/null"),
        ("data check own.hdf5 extra.hdf5", "usage", "extra.hdf5"),
        ("data check", "usage", "a file or a task's name"),
        ("data check own.hdf5 --task BallRun", "refused", "do not belong to BallRun"),
        ("data check BallRun --task CarRun", "refused", "CarRun"),
    ]
    for words, expected, says in rows:
        yield Case("data", words, words, expected, says, takes=("own.hdf5",), writes=("*.png", "deep*"))
