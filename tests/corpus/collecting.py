"""``tracrl collect``: its options, environments that break its rules, and two of it at a time."""

from __future__ import annotations

from collections.abc import Iterator

from tests.corpus.case import ROOT, Case, Expected

QUICK = "--steps 100 --episodes 2 --workers 1"
HUGE = str(10**30)


def cases() -> Iterator[Case]:
    rows: list[tuple[str, Expected, str]] = [
        ("collect", "refused", "Say what to collect from"),
        ("collect BallRun --env tiny_envs:Road", "refused", "Say what to collect from"),
        ("collect BalRun", "refused", "did you mean BallRun"),
        ("collect --env nonsense:Road", "refused", "nonsense"),
        ("collect --env tiny_envs:Nonsense", "refused", "Nonsense"),
        ("collect --env tiny_envs:", "refused", "tiny_envs"),
        ("collect --env :Road", "refused", "Road"),
        ("collect --env Nonsense-v0", "refused", "Nonsense"),
        ("collect --env tracrl.errors:TracrlError", "refused", "TracrlError"),
        ("collect --env os:system", "refused", "os:system"),
        (f"collect --env tiny_envs:Unpriced {QUICK}", "refused", "cost"),
        (f"collect --env tiny_envs:Refunding {QUICK}", "refused", "cost"),
        (f"collect --env tiny_envs:Foggy {QUICK}", "refused", "NaN|finite|observation"),
        (f"collect --env tiny_envs:Switch {QUICK}", "refused", "action"),
        (f"collect --env tiny_envs:Boundless {QUICK}", "refused", "action"),
        (f"collect --env tiny_envs:Pair {QUICK}", "refused", "observation"),
        (f"collect --env tiny_envs:Broken {QUICK}", "refused", "axle broke"),
        (f"collect --env tiny_envs:Road {QUICK} --cost-key nonsense", "refused", "nonsense"),
        ("collect BallRun --steps 0", "refused", "--steps"),
        ("collect BallRun --steps -1", "refused", "--steps"),
        (f"collect BallRun --steps {HUGE}", "refused", "--steps"),
        ("collect BallRun --steps 1e6", "usage", "steps"),
        ("collect BallRun --episodes 0", "refused", "--episodes"),
        (f"collect BallRun --episodes {HUGE}", "refused", "--episodes"),
        ("collect BallRun --seed -1", "refused", "--seed"),
        (f"collect BallRun --seed {HUGE}", "refused", "--seed"),
        ("collect BallRun --limits nan", "refused", "--limits"),
        ("collect BallRun --limits -1", "refused", "--limits"),
        ("collect BallRun --workers 0", "refused", "--workers"),
        ("collect BallRun --workers -3", "refused", "--workers"),
        (f"collect --env tiny_envs:Road {QUICK} --max-steps 0", "refused", "--max-steps"),
        (f"collect --env tiny_envs:Road {QUICK} --max-steps -5", "refused", "--max-steps"),
        ("collect BallRun --observation-bits 0", "refused", "--observation-bits"),
        ("collect BallRun --observation-bits 25", "refused", "--observation-bits"),
        ("collect BallRun --out own.hdf5", "refused", "own.hdf5 exists"),
        ("collect BallRun --out own.hdf5 --resume", "refused", "own.hdf5"),
        ("collect BallRun --out own.hdf5/x.hdf5", "refused", "own.hdf5"),
        ("collect BallRun --out own-run", "refused", "own-run"),
        ("collect BallRun --out /proc/x.hdf5", "refused", "/proc"),
        (f"collect --env tiny_envs:Road {QUICK} --out made.hdf5", "works", "made"),
        ("collect --env tiny_envs:Road --steps 100 --episodes 2 --workers 30 --out made.hdf5", "works", "made"),
    ]
    for words, expected, says in rows:
        yield Case(
            "collect", words.replace(HUGE, "10^30"), words, expected, says, takes=("own.hdf5", "own-run"),
            path=(str(ROOT / "tests/envs/own"),), writes=("made.*",),
        )  # fmt: skip
    yield Case(
        "collect", "two into one file", f"collect BallRun {QUICK} --out made.hdf5", "works", "one was refused",
        own_process=True, writes=("made.*", "one", "two"), seconds=120,
        shell="{} > one 2>&1 & first=$!; {} --seed 1 > two 2>&1; second=$?; wait $first; "
        'test $? -ne $second -a $second -le 1 && echo "one was refused"',
    )  # fmt: skip
    for name in ("random.py", "numpy.py", "gymnasium.py", "pybullet.py", "json.py", "torch.py"):
        yield Case(
            "collect", f"a {name} in the folder", f"collect BallRun {QUICK} --out made.hdf5", "works", "made",
            lambda folder, name=name: (folder / name).write_text("raise SystemExit('the wrong code')"),
            own_process=True, writes=("made.*", "__pycache__*"),
        )  # fmt: skip
