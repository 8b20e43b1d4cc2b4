"""Options of every command and every setting of every method, out of range; and some that must work."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import fields

from tests.corpus.case import ROOT, Case, Expected
from tracrl.methods.registry import METHODS

SMALL = "--limits 4 --no-eval --out run"
HUGE = str(10**30)
BUNDLED = ROOT / "tracrl/data/bundled/BallRun.hdf5"


def cases() -> Iterator[Case]:
    yield from _settings()
    yield from _by_hand()


def _settings() -> Iterator[Case]:
    """For each number of each method two values that cannot be meant."""
    for name, method in METHODS.items():
        hints = typing.get_type_hints(method)
        for number, field in enumerate(fields(method)):
            kind = hints[field.name]
            option = "--" + field.name.replace("_", "-")
            wrong = {int: ("-1", HUGE), float: ("nan", "1e38") if number % 2 else ("-1", "inf")}
            for value in wrong.get(kind, ()):
                words = f"train {name} --data own.hdf5 {SMALL} {option} {value}"
                yield Case("settings", f"{name} {option} {value:.6}", words, "refused", option, takes=("own.hdf5",))
            if typing.get_origin(kind) is tuple:
                for value in ("0", "-1", HUGE, " ".join(["1"] * 100)):
                    words = f"train {name} --data own.hdf5 {SMALL} {option} {value}"
                    yield Case(
                        "settings", f"{name} {option} {value:.12}", words, "refused", option, takes=("own.hdf5",)
                    )
            if typing.get_origin(kind) is typing.Literal:
                words = f"train {name} --data own.hdf5 {SMALL} {option} nonsense"
                yield Case("settings", f"{name} {option} nonsense", words, "usage", option, takes=("own.hdf5",))


def _by_hand() -> Iterator[Case]:
    tiny = "--hidden 8 8 --batch-size 8"
    own = "--data own.hdf5 --limits 4 --no-eval --out run"
    ball = "BallRun --no-eval --out run"
    rows: list[tuple[str, Expected, str]] = [
        # Numbers of a run
        (f"train bc-all {own} {tiny} --updates 2 --seeds -1", "refused", "--seeds"),
        (f"train bc-all {own} {tiny} --updates 2 --seeds {2**63}", "refused", "--seeds"),
        (f"train bc-all {own} {tiny} --updates 2 --seeds {2**64}", "refused", "--seeds"),
        (f"train bc-all {own} {tiny} --updates 2 --seeds {HUGE}", "refused", "--seeds"),
        (f"train bc-all {own} {tiny} --updates 2 --seeds {2**63 - 1}", "works", ""),
        (f"train bc-all {own} {tiny} --updates 2 --seeds {2**32}", "works", ""),
        (f"train bc-all {own} {tiny} --updates 2 --seeds 1 1", "refused", "--seeds"),
        (f"train bc-all {own} {tiny} --updates 2 --seeds", "either", ""),
        (f"train bc-all {own} {tiny} --updates 2 --seeds x", "usage", "seeds"),
        (f"train bc-all {own} {tiny} --updates 2 --seeds 1.5", "usage", "seeds"),
        (f"train bc-all {own} {tiny} --updates 2.5", "usage", "updates"),
        (f"train bc-all {own} {tiny} --updates ١٢", "either", ""),
        (f"train bc-all --data own.hdf5 {tiny} --out run --updates 2 --limits 4 4", "refused", "--limits"),
        (f"train bc-all --data own.hdf5 {tiny} --out run --updates 2 --limits 4 4.0000001", "refused", "--limits"),
        (f"train bc-all --data own.hdf5 {tiny} --out run --updates 2 --limits nan", "refused", "--limits"),
        (f"train bc-all --data own.hdf5 {tiny} --out run --updates 2 --limits inf", "refused", "--limits"),
        (f"train bc-all --data own.hdf5 {tiny} --out run --updates 2 --limits -0.5", "refused", "--limits"),
        (f"train bc-all --data own.hdf5 {tiny} --out run --updates 2 --limits 1e300", "refused", "--limits"),
        (f"train bc-all --data own.hdf5 {tiny} --out run --updates 2 --limits 0", "works", ""),
        (f"train bc-all {own} {tiny} --updates 2 --episodes 0", "refused", "--episodes"),
        (f"train bc-all {own} {tiny} --updates 2 --episodes -3", "refused", "--episodes"),
        (f"train bc-all BallRun {tiny} --out run --updates 2 --episodes {10**14}", "refused", "--episodes"),
        (f"train bc-all BallRun {tiny} --out run --updates 2 --evaluations {10**10}", "refused", "--evaluations"),
        (f"train bc-all BallRun {tiny} --out run --updates 2 --evaluations -1", "refused", "--evaluations"),
        (f"train bc-all BallRun {tiny} --out run --updates {10**30}", "refused", "--updates"),
        ("data check BallRun --task CarRun", "refused", "not of CarRun"),
        ("data check BallRun --task BallRun", "works", "in order"),
        ("data inspect BallRun --task CarRun", "refused", "not of CarRun"),
        (f"train bc-all CarRun --data {BUNDLED} {tiny} --updates 2 --out run", "refused", "not of CarRun"),
        # Words of a run
        ("train", "usage", "usage: tracrl train"),
        ("train --help", "works", "usage: tracrl train"),
        ("train trac --help", "works", "--alpha"),
        ("train cdt BallRun --help", "works", "--context"),
        ("train trac", "refused", "Say what to train on"),
        ("train trak BallRun", "refused", "did you mean trac"),
        ("train xyz BallRun", "refused", "There is no method called 'xyz'"),
        ("train BallRun", "refused", "BallRun"),
        ("train trac BalRun", "refused", "did you mean BallRun"),
        ("train trac BallRun CarRun", "usage", "CarRun"),
        (f"train bc-all {ball} --data own.hdf5", "refused", "do not belong to BallRun"),
        ("train bc-all --data nothing.hdf5 --limits 4", "refused", "There is no data file at nothing.hdf5"),
        ("train bc-all --data own.hdf5 --no-eval", "refused", "--limits 25"),
        (f"train bc-all {own} --preset quick", "usage", "preset"),
        (f"train bc-all {own} --device tpu", "usage", "device"),
        (f"train bc-all {own} --device cuda", "refused", "CUDA"),
        (f"train bc-all {own} --precision float8", "usage", "precision"),
        (f"train bc-all {own} --unknown 3", "usage", "unknown"),
        (f"train bc-all {own} --updates", "usage", "updates"),
        (f"train trac {own} --alpah 3", "usage", "alpha"),
        (f"train trac {own} --rate 0.1", "refused", "--lr"),
        (f"train trac {own} --clone-rate 0.1", "refused", "--bc-lr"),
        (f"train bc-all {own} --dropout 0.1", "usage", "dropout"),
        (f"train bc-all {own} {tiny} --updates 2 --wandb project", "refused", "wandb"),
        ("train my_file:Mine BallRun", "refused", "my_file"),
        ("train :Mine BallRun", "refused", "Mine"),
        ("train tracrl.errors:TracrlError BallRun", "refused", "TracrlError"),
        # What is there already
        ("train bc-all --data own.hdf5 --limits 4 --no-eval --out own.hdf5", "refused", "own.hdf5"),
        ("train bc-all --data own.hdf5 --limits 4 --no-eval --out own.hdf5/run", "refused", "own.hdf5"),
        ("train bc-all --data own.hdf5 --limits 4 --no-eval --out .", "refused", "holds no run"),
        ("train bc-all --data own.hdf5 --limits 4 --no-eval --out /proc/run", "refused", "/proc/run"),
        ("train bc-all --data own.hdf5 --limits 4 --no-eval --out /dev/null", "refused", "/dev/null"),
        ("train bc-all --data own.hdf5 --limits 4 --no-eval --out /dev/null/run", "refused", "/dev/null"),
        # Settings that do not go together
        (f"train trac {own} --updates 10 --clone-updates 11", "refused", "--clone-updates"),
        (f"train trac {own} --x 60 --y 60", "refused", "--y"),
        (f"train trac {own} --x 0", "refused", "--x"),
        (f"train trac {own} --ratio 0", "refused", "--ratio"),
        (f"train trac {own} --ratio 1.5", "refused", "--ratio"),
        (f"train trac {own} --dropout 0.9999", "refused", "--dropout"),
        (f"train trac {own} --dropout 1", "refused", "--dropout"),
        (f"train cdt {own} --width 7 --heads 2", "refused", "--heads|--width"),
        (f"train cdt {own} --heads 0", "refused", "--heads"),
        (f"train cpq {own} --reward-scale 0", "refused", "--reward-scale"),
        (f"train bcq-lag {own} --reward-scale -1", "refused", "--reward-scale"),
        (f"train coptidice {own} --critics 0", "refused", "--critics"),
        (f"train bc-safe --data own.hdf5 {tiny} --out run --limits 0 --updates 2", "either", ""),
        (f"train trac --data own.hdf5 {tiny} --out run --limits 1e6 --updates 20", "refused", "safe"),
        # What must work
        (f"train trac {own} {tiny} --updates 20", "works", "clon"),
        (f"train trac BallRun --no-eval --out run {tiny} --preset fast --updates 30 --limits 20", "works", "clon"),
        ("train trac BallRun --no-eval --out run --hidden 8 --updates 4 --limits 10 --batch-size 250", "works", ""),
        (f"train trac {own} {tiny} --updates 20 --clone-updates 0 --y 40", "works", ""),
        (f"train trac {own} {tiny} --updates 20 --clone-updates 20", "works", ""),
        *((f"train {name} {own} {_tiny(name)} --updates 3", "works", "") for name in METHODS),
        # Evaluating
        ("evaluate", "usage", "(?i)run"),
        ("evaluate nowhere", "refused", "There is no policy at nowhere"),
        ("evaluate own.hdf5", "refused", "own.hdf5"),
        ("evaluate own-run", "refused", "--task"),
        ("evaluate own-run --task BallRun", "refused", "size"),
        ("evaluate own-run --task BalRun", "refused", "did you mean BallRun"),
        ("evaluate ball-run --episodes 0", "refused", "--episodes"),
        ("evaluate ball-run --episodes -1", "refused", "--episodes"),
        (f"evaluate ball-run --episodes {10**14}", "refused", "--episodes"),
        ("evaluate ball-run --seed -1", "refused", "--seed"),
        ("evaluate ball-run --episodes 1 --workers 0", "refused", "--workers"),
        ("evaluate ball-run --episodes 1 --workers -2", "refused", "--workers"),
        ("evaluate ball-run --episodes 1 --video film.txt", "refused", "film.txt"),
        ("evaluate ball-run --episodes 1 --workers 1", "works", "final policy"),
        ("evaluate ball-run --episodes 1 --seed 7 --workers 30", "works", "final policy"),
        ("evaluate ball-run --task CarRun --episodes 1", "either", ""),
        # Studies
        ("study", "usage", "(?i)study"),
        ("study mian", "usage", "main"),
        ("study main --tasks BalRun --plan", "refused", "did you mean BallRun"),
        ("study main --tasks BallRun --methods trak --plan", "refused", "did you mean trac"),
        ("study main --tasks BallRun --methods trac --set updates=500 --plan", "works", "trac|TraC"),
        ("study main --tasks BallRun --set updates=-1 --plan", "refused", "updates"),
        ("study main --tasks BallRun --set updates=x --plan", "refused", "updates"),
        (f"study main --tasks BallRun --set updates={HUGE} --plan", "refused", "updates"),
        ("study main --tasks BallRun --set nonsense=1 --plan", "refused", "nonsense"),
        ("study main --tasks BallRun --set updates --plan", "refused", "updates"),
        ("study main --tasks BallRun --set =3 --plan", "refused", "=3"),
        ("study main --tasks BallRun --set trac.=3 --plan", "refused", "trac"),
        ("study main --tasks BallRun --set trac.hidden=[] --plan", "refused", "hidden"),
        ("study main --tasks BallRun --set trac.alpha=nan --plan", "refused", "alpha"),
        ("study main --tasks BallRun --seeds -1 --plan", "refused", "--seeds"),
        ("study main --data nothing.hdf5 --limits 4 --plan", "refused", "nothing.hdf5"),
        ("study main --data own.hdf5 --methods bc-all --plan", "refused", "--limits"),
        ("study main --data own.hdf5 --limits 4 --tasks BallRun --plan", "refused", "--tasks"),
        ("study main --data own.hdf5 --limits 4 --env nowhere --plan", "refused", "nowhere"),
        ("study main --data own.hdf5 --limits 4 --env a:B --max-steps 0 --plan", "refused", "--max-steps"),
        ("study main --tasks BallRun --env a:B --plan", "refused", "--data"),
        ("study main --tasks BallRun --collect-steps 5 --plan", "refused", "--collect"),
        ("study main --tasks BallRun --collect --collect-steps 0 --plan", "refused", "--collect-steps"),
        (f"study main --tasks BallRun --collect --collect-episodes {HUGE} --plan", "refused", "--collect-episodes"),
        (f"study main --tasks BallRun --seeds {2**63} --plan", "refused", "--seeds"),
        ("study main --tasks BallRun --seeds 1 1 --plan", "refused", "--seeds"),
        ("study main --tasks BallRun --limits -1 --plan", "refused", "--limits"),
        ("study main --tasks BallRun --limits nan --plan", "refused", "--limits"),
        ("study main --tasks BallRun --episodes 0 --plan", "refused", "--episodes"),
        (f"study main --tasks BallRun --episodes {10**14} --plan", "refused", "--episodes"),
        (f"study main --tasks BallRun --evaluations {10**10} --plan", "refused", "--evaluations"),
        ("study main --tasks BallRun --workers 0", "refused", "--workers"),
        ("study main --tasks BallRun --retries -1", "refused", "--retries"),
        ("study main --tasks BallRun --cores-per-run 0 --backend ray", "refused", "--cores-per-run|[Rr]ay"),
        ("study main --tasks BallRun --backend slurm", "usage", "backend"),
        ("study main --tasks BallRun --out own.hdf5 --plan", "either", ""),
        ("study main --tasks BallRun --out own.hdf5", "refused", "own.hdf5"),
        ("study alpha --methods cdt --plan", "refused", "TraC|trac|ablation"),
        # Reports
        ("report", "refused", "Say where the runs lie"),
        ("report nowhere", "refused", "nowhere"),
        ("report own.hdf5", "refused", "own.hdf5"),
        ("report ball-run --out own.hdf5", "refused", "own.hdf5 is a file"),
        ("report own-run --out report", "works", "not evaluated: no environment"),
        ("report ball-run --out report", "works", "Page: report"),
        ("report ball-run own-run --out report", "works", "Page: report"),
        ("report ball-run ball-run --out report", "works", "Page: report"),
        # The rest
        ("tasks", "works", "BallRun"),
        ("tasks extra", "usage", "extra"),
        ("methods --suite Mujoco", "usage", "suite"),
        ("methods --preset fast", "works", "TraC"),
        ("sims", "works", "bullet"),
        ("sims install", "refused", "Say which simulator"),
        ("sims install mujoco", "refused", "mujoco"),
        ("sims remove bullet", "usage", "remove|install"),
        ("data fetch", "refused", "Say which tasks"),
        ("data fetch BalRun", "refused", "did you mean BallRun"),
    ]
    for words, expected, says in rows:
        writes = ("run", "run/*", "runs", "runs/*", "report", "report/*") if expected in ("works", "either") else ()
        takes = ("own.hdf5", "own-run", "ball-run")
        name = words if len(words) < 90 else f"{words[:60]} ... {words[-28:]}"
        yield Case("options", name, words, expected, says, takes=takes, writes=writes)


def _tiny(method: str) -> str:
    hidden = "--width 8 --layers 1 --heads 1 --context 4" if method == "cdt" else "--hidden 8 8"
    return f"{hidden} --batch-size 8"
