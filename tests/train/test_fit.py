from __future__ import annotations

import csv
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tracrl
from tests.conftest import make_small_data
from tests.odd_envs import DyingEnv
from tracrl.checkpoints import Checkpoint
from tracrl.claims import BusyError, Claim, ClaimLostError, this_process
from tracrl.data.episodes import Episodes
from tracrl.data.hdf5 import write_hdf5
from tracrl.envs.environment import EnvSpec
from tracrl.errors import TracrlError
from tracrl.evaluation.evaluate import Evaluator
from tracrl.methods.bc import BCAll, BCSafe
from tracrl.methods.bcq_lag import BCQLag
from tracrl.methods.caps import CAPS
from tracrl.methods.method import RunSpec
from tracrl.methods.registry import METHODS
from tracrl.methods.trac import TraC
from tracrl.policies.base import Policy
from tracrl.study.studies import PAPER_ORDER
from tracrl.tensor_files import save_tensors
from tracrl.train import devices
from tracrl.train import fit as fit_module
from tracrl.train.devices import choose_precision
from tracrl.train.directory import RunDirectory, describe
from tracrl.train.fit import fit
from tracrl.train.logs import CsvLog
from tracrl.train.loop import Interrupted, Loop
from tracrl.train.progress import Silence
from tracrl.train.stack import Stack

SMALL = TraC(updates=30, clone_updates=10, batch_size=6, hidden=(16, 16), warmup=4, lr=1e-3, bc_lr=1e-3)
LIMITS, SEEDS = [3.0, 4.0], [0, 10]


def same(a: Policy, b: Policy) -> bool:
    return a.metadata == b.metadata and all(np.array_equal(a.tensors[k], b.tensors[k]) for k in a.tensors)


class StopAt(Silence):
    """Presses Ctrl-C after so many updates."""

    def __init__(self, step: int):
        self.at = step

    def advance(self, step: int, phase: str, loss: torch.Tensor) -> None:
        if step >= self.at:
            os.kill(os.getpid(), signal.SIGINT)
            self.at = 10**9


def test_limits_times_seeds_in_order(small_data: Episodes) -> None:
    run = fit(SMALL, small_data, limits=LIMITS, seeds=SEEDS)
    assert run.policy.metadata.limits == (3, 3, 4, 4)
    assert run.policy.metadata.seeds == (0, 10, 0, 10)
    assert run.directory is None
    assert {row["phase"] for row in run.history} == {"cloning", "classification"}


def test_a_stack_is_its_runs_however_it_is_cut(small_data: Episodes) -> None:
    runs = [fit_module.RunSpec(limit, seed) for limit in LIMITS for seed in SEEDS]
    together = fit(SMALL, small_data, limits=LIMITS, seeds=SEEDS, standardise="off").policy
    for threads, parts in ((1, 1), (2, 2), (4, 4)):
        with Stack(SMALL, small_data, runs, torch.device("cpu"), threads=threads) as stack:
            assert len(stack.learners) == parts
            stack.update(SMALL.updates)
            cut = stack.policy()
        for name, tensor in cut.tensors.items():
            assert np.allclose(tensor, together.tensors[name], atol=1e-5), (name, threads)
    for i, (limit, seed) in enumerate((limit, seed) for limit in LIMITS for seed in SEEDS):
        alone = fit(SMALL, small_data, limits=[limit], seeds=[seed], standardise="off").policy
        for name, tensor in alone.tensors.items():
            assert np.allclose(tensor[0], together.tensors[name][i], atol=1e-5), (name, limit, seed)


def test_a_checkpoint_does_not_know_how_the_stack_was_cut(small_data: Episodes) -> None:
    runs = [fit_module.RunSpec(limit, 0) for limit in (3.0, 4.0, 5.0)]
    cpu = torch.device("cpu")
    with Stack(SMALL, small_data, runs, cpu, threads=3) as many, Stack(SMALL, small_data, runs, cpu, threads=1) as one:
        assert (len(many.learners), len(one.learners)) == (3, 1)
        many.update(15)
        one.restore(many.state(), many.step)
        many.update(10)
        one.update(10)
        for name, tensor in many.state().items():
            assert torch.allclose(tensor, one.state()[name], atol=1e-6), name


@pytest.mark.parametrize("stop", [3, 10, 17])
def test_stopped_and_resumed_it_ends_with_the_same_weights(small_data: Episodes, tmp_path: Path, stop: int) -> None:
    whole = fit(SMALL, small_data, limits=LIMITS, seeds=SEEDS, out=tmp_path / "whole")
    with pytest.raises(Interrupted, match=rf"Stopped after \d+ of 30 updates.*{tmp_path}.*--resume"):
        fit(SMALL, small_data, limits=LIMITS, seeds=SEEDS, out=tmp_path / "cut", progress=StopAt(stop))
    assert not (tmp_path / "cut" / "policy.safetensors").exists()
    resumed = fit(SMALL, small_data, limits=LIMITS, seeds=SEEDS, out=tmp_path / "cut", resume=True)
    assert same(whole.policy, resumed.policy)
    for name in ("metrics.csv", "config.json", "policy.safetensors"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name


def test_killed_and_resumed_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    """SIGKILL in the middle: what was since the last checkpoint is lost, and nothing else."""
    data = make_small_data()
    write_hdf5(data, tmp_path / "data.hdf5")
    script = (
        "import sys, torch, tracrl\n"
        "torch.set_num_threads(1)\n"
        "method = tracrl.TraC(updates=1500, clone_updates=500, batch_size=6, hidden=(16, 16), warmup=4, lr=1e-3)\n"
        "data = tracrl.load_dataset(sys.argv[1])\n"
        "tracrl.fit(method, data, limits=[4.0], out=sys.argv[2], resume=True, checkpoint_seconds=0.05)\n"
    )

    def start(out: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", script, str(tmp_path / "data.hdf5"), str(tmp_path / out)])

    whole = start("whole")
    cut = start("cut")
    checkpoint = tmp_path / "cut" / "checkpoint.safetensors"
    deadline = time.monotonic() + 100
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    cut.kill()
    cut.wait()
    reached = Checkpoint.load(checkpoint).step
    assert 0 < reached < 1500
    assert start("cut").wait(120) == 0
    assert whole.wait(120) == 0
    assert same(tracrl.load_policy(tmp_path / "whole"), tracrl.load_policy(tmp_path / "cut"))
    steps = [int(row["step"]) for row in csv.DictReader((tmp_path / "cut" / "metrics.csv").open())]
    assert steps == sorted(set(steps)), "no step is logged twice"
    assert (tmp_path / "whole" / "metrics.csv").read_bytes() == (tmp_path / "cut" / "metrics.csv").read_bytes()


def test_a_directory_that_another_process_trains_in_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "run"
    write_hdf5(make_small_data(), tmp_path / "data.hdf5")
    words = ["--data", str(tmp_path / "data.hdf5"), "--limits", "4", "--out", str(out), "--hidden", "8"]
    command = [sys.executable, "-m", "tracrl.cli", "train", "bc-all", *words]
    first = subprocess.Popen([*command, "--updates", "10000000"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (out / "metrics.csv").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        config = (out / "config.json").read_bytes()
        for again in (["--updates", "10000000", "--resume"], ["--updates", "20"]):
            second = subprocess.run([*command, *again], capture_output=True, text=True, timeout=60, check=False)
            assert second.returncode == 1
            assert re.fullmatch(rf"tracrl: Process {first.pid} on \S+ is at work in {out}: wait .*\n", second.stderr)
        assert (out / "config.json").read_bytes() == config
        assert first.poll() is None
    finally:
        first.kill()
        first.wait()


def test_one_that_comes_in_between_is_noticed(
    small_data: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process begins, or has begun and ended, while this one makes its networks."""

    def meanwhile(happens: Callable[[], object]) -> None:
        monkeypatch.setattr(fit_module, "Stack", lambda *a, **k: (happens(), Stack(*a, **k))[1])

    out = tmp_path / "run"
    other = Claim(out / "claim.json")
    meanwhile(other.__enter__)
    with pytest.raises(BusyError, match=f"is at work in {out}"):
        fit(SMALL, small_data, limits=[4.0], out=out)
    other.__exit__(None, None, None)
    assert not out.exists()
    meanwhile(lambda: RunDirectory(out).begin(describe(BCAll(), small_data, [], [4.0], [0]), resume=False))
    with pytest.raises(TracrlError, match="holds a run that can go on"):
        fit(SMALL, small_data, limits=[4.0], out=out)
    assert json.loads((out / "config.json").read_text())["method"] == "bc-all"


def test_a_place_that_holds_something_else_is_left_alone(small_data: Episodes, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    for name in ("claim.json", "notes.txt"):
        (tmp_path / "folder" / name).write_text("mine")
    os.utime(tmp_path / "folder" / "claim.json", (1, 1))
    for name in ("file", "folder"):
        with pytest.raises(TracrlError, match=f"{name} is there already and holds no run: choose another --out"):
            fit(SMALL, small_data, limits=[4.0], out=tmp_path / name)
    assert {file.name for file in (tmp_path / "folder").iterdir()} == {"claim.json", "notes.txt"}


def test_a_dead_process_blocks_nobody(small_data: Episodes, tmp_path: Path) -> None:
    """Killed before its first file, and killed in the middle."""
    whole = fit(SMALL, small_data, limits=[4.0], out=tmp_path / "whole")
    dead = json.dumps({**this_process(), "started": "1", "token": "x"})
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "claim.json").write_text(dead)
    with pytest.raises(Interrupted):
        fit(SMALL, small_data, limits=[4.0], out=tmp_path / "run", progress=StopAt(5))
    assert not (tmp_path / "run" / "claim.json").exists()
    (tmp_path / "run" / "claim.json").write_text(dead)
    assert same(fit(SMALL, small_data, limits=[4.0], out=tmp_path / "run", resume=True).policy, whole.policy)
    assert not (tmp_path / "run" / "claim.json").exists()


def test_the_directory_explains_itself(small_data: Episodes, tmp_path: Path) -> None:
    fit(SMALL, small_data, limits=LIMITS, seeds=SEEDS, out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert config["method"] == "trac"
    assert config["settings"]["alpha"] == 0.2
    assert config["limits"] == LIMITS
    assert config["seeds"] == SEEDS
    expected = {"fingerprint": small_data.fingerprint, "episodes": 60, "rows": small_data.rows, "task": None}
    assert config["data"] == expected
    assert config["versions"]["torch"] == torch.__version__
    rows = list(csv.DictReader((tmp_path / "run" / "metrics.csv").open()))
    assert len(rows) == 30 * 4
    assert float(rows[-1]["accuracy"]) <= 1
    assert any((tmp_path / "run" / "tensorboard").rglob("events*"))
    assert not list((tmp_path / "run").glob(".*")), "nothing half-written is left"


def test_a_finished_run_is_not_trained_again(small_data: Episodes, tmp_path: Path) -> None:
    first = fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run")
    before = (tmp_path / "run" / "policy.safetensors").stat().st_mtime_ns
    again = fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run", resume=True)
    assert same(first.policy, again.policy)
    assert (tmp_path / "run" / "policy.safetensors").stat().st_mtime_ns == before
    with pytest.raises(TracrlError, match="holds a finished run: go on with --resume, or choose another --out"):
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run")


def test_a_setting_that_is_gone_is_said(small_data: Episodes, tmp_path: Path) -> None:
    fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["settings"]["old"] = 2
    (tmp_path / "run" / "config.json").write_text(json.dumps({**config, "identity": "another"}))
    with pytest.raises(TracrlError, match=r"settings differ in old \(2 there, None here\)"):
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run", resume=True)


def test_what_a_kill_left_of_the_first_file_is_no_content(small_data: Episodes, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.json.123.part").write_text("{")
    assert fit(SMALL, small_data, limits=[4.0], out=tmp_path / "run", resume=True).directory == tmp_path / "run"


def test_data_that_are_refused_leave_the_threads_as_they_were(small_data: Episodes) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(TracrlError, match="No episode is safe"):
            fit(BCSafe(updates=3), replace(small_data, costs=small_data.costs + 1), limits=[0.0, 0.5], seeds=SEEDS)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_every_line_of_the_log_belongs_to_its_phase(small_data: Episodes) -> None:
    odd = replace(SMALL, updates=900, clone_updates=333, batch_size=3, hidden=(4,))  # logged every second update
    for row in fit(odd, small_data, limits=[4.0]).history:
        assert row["phase"] == ("cloning" if row["step"] <= 333 else "classification"), row["step"]


def test_another_run_in_the_directory_is_said(small_data: Episodes, tmp_path: Path) -> None:
    out = tmp_path / "run"
    fit(SMALL, small_data, limits=LIMITS, out=out)
    with pytest.raises(TracrlError, match=r"settings differ in alpha \(0.2 there, 0.3 here\)"):
        fit(replace(SMALL, alpha=0.3), small_data, limits=LIMITS, out=out, resume=True)
    with pytest.raises(TracrlError, match=r"limits are different \(\[3.0, 4.0\] there, \[3.0\] here\)"):
        fit(SMALL, small_data, limits=[3.0], out=out, resume=True)
    with pytest.raises(TracrlError, match=r"method are different \('trac' there, 'bc-all' here\)"):
        fit(BCAll(), small_data, limits=LIMITS, out=out, resume=True)
    with pytest.raises(TracrlError, match="data differ in fingerprint"):
        fit(SMALL, make_small_data(seed=1), limits=LIMITS, out=out, resume=True)


def test_all_that_determines_the_result_is_in_the_identity(small_data: Episodes) -> None:
    def identity(data: Episodes) -> str:
        return str(describe(SMALL, data, [], LIMITS, SEEDS)["identity"])

    assert small_data.final_observations is not None
    others = [
        replace(small_data, final_observations=None),
        replace(small_data, final_observations=small_data.final_observations + 1),
        replace(small_data, action_high=2 * small_data.action_high),
        replace(small_data, metadata={"task": "BallRun"}),
    ]
    assert len({identity(data) for data in (small_data, *others)}) == 5
    assert identity(replace(small_data, metadata={"file": "elsewhere.hdf5"})) == identity(small_data)


def test_a_checkpoint_of_another_method_or_shape_is_said(small_data: Episodes, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "a", progress=StopAt(5))
    other = replace(SMALL, hidden=(8, 8))
    with pytest.raises(Interrupted):
        fit(other, small_data, limits=LIMITS, out=tmp_path / "b", progress=StopAt(5))
    (tmp_path / "b" / "checkpoint.safetensors").write_bytes((tmp_path / "a" / "checkpoint.safetensors").read_bytes())
    with pytest.raises(
        TracrlError, match=r"The checkpoint does not fit: network.layers.0.weight should have shape \(2, 3, 8\)"
    ):
        fit(other, small_data, limits=LIMITS, out=tmp_path / "b", resume=True)
    with pytest.raises(Interrupted):
        fit(BCSafe(updates=30), small_data, limits=LIMITS, out=tmp_path / "c", progress=StopAt(5))
    (tmp_path / "c" / "checkpoint.safetensors").write_bytes((tmp_path / "a" / "checkpoint.safetensors").read_bytes())
    with pytest.raises(TracrlError, match="The checkpoint is one of trac, not of bc-safe"):
        fit(BCSafe(updates=30), small_data, limits=LIMITS, out=tmp_path / "c", resume=True)


def test_a_checkpoint_that_is_cut_off_is_said(small_data: Episodes, tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run", progress=StopAt(5))
    path = tmp_path / "run" / "checkpoint.safetensors"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(TracrlError, match="is not a whole checkpoint"):
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize(
    "change",
    [
        {"step": 31},
        {"step": 10**30},
        {"best_scores": [1]},
        {"pending_evaluation": {"deep": [{}]}},
        {"method": None},
    ],
)
def test_a_checkpoint_of_other_contents_is_said(
    small_data: Episodes, tmp_path: Path, change: dict[str, object]
) -> None:
    with pytest.raises(Interrupted):
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run", progress=StopAt(5))
    path = tmp_path / "run" / "checkpoint.safetensors"
    there = Checkpoint.load(path)
    header = {"step": there.step, **there.metadata, **change}
    best = {f"best.{name}": torch.zeros(1) for name in ("weight0", "bias0")} if "best_scores" in change else {}
    save_tensors(path, {**there.tensors, **best}, header, "torch")
    with pytest.raises(TracrlError, match="checkpoint"):
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run", resume=True)


@pytest.mark.parametrize("fault", ["whole numbers", "best of whole numbers", "a link to itself", "a link to nothing"])
def test_a_checkpoint_of_other_numbers_or_that_cannot_be_opened_is_not_trained_over(
    small_data: Episodes, tmp_path: Path, fault: str
) -> None:
    with pytest.raises(Interrupted):
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run", progress=StopAt(5))
    path = tmp_path / "run" / "checkpoint.safetensors"
    there = Checkpoint.load(path)
    if fault == "whole numbers":
        Checkpoint(there.step, {k: v.long() for k, v in there.tensors.items()}, there.metadata).save(path)
    elif fault == "best of whole numbers":
        policy = fit(SMALL, small_data, limits=LIMITS).policy
        best = {f"best.{name}": torch.from_numpy(tensor).long() for name, tensor in policy.tensors.items()}
        Checkpoint(there.step, {**there.tensors, **best}, there.metadata).save(path)
    else:
        path.unlink()
        path.symlink_to(path if fault == "a link to itself" else tmp_path / "nothing")
    before = path.read_bytes() if path.exists() else path.readlink()
    words = "holds torch.int64" if "numbers" in fault else "is not a whole checkpoint"
    with pytest.raises(TracrlError, match=rf"checkpoint\.safetensors.*{words}"):
        fit(SMALL, small_data, limits=LIMITS, out=tmp_path / "run", resume=True)
    assert (path.read_bytes() if path.exists() else path.readlink()) == before


class At(Silence):
    """Does something after so many updates."""

    def __init__(self, step: int, action: Callable[[], object]):
        self.at, self.action = step, action

    def advance(self, step: int, phase: str, loss: torch.Tensor) -> None:
        if step >= self.at:
            self.at = 10**9
            self.action()


def test_a_run_directory_that_is_removed_ends_the_training_and_not_its_host(
    small_data: Episodes, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    with pytest.raises(ClaimLostError, match="run was removed or moved while it was worked in"):
        fit(SMALL, small_data, limits=LIMITS, out=out, progress=At(5, lambda: shutil.rmtree(out)))
    assert not (out / "policy.safetensors").exists()
    assert not (out / "config.json").exists()


def test_a_run_that_another_took_over_is_left_to_it(small_data: Episodes, tmp_path: Path) -> None:
    out = tmp_path / "run"

    def take_over() -> None:
        (out / "claim.json").write_text(json.dumps({**this_process(), "host": "node7", "token": "another's"}))

    with pytest.raises(ClaimLostError, match="on node7 has taken over"):
        fit(SMALL, small_data, limits=LIMITS, out=out, progress=At(5, take_over))
    assert not (out / "checkpoint.safetensors").exists()
    assert not (out / "policy.safetensors").exists()


def test_a_full_disk_loses_nothing_that_was_saved(
    small_data: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        fit(SMALL, small_data, limits=LIMITS, out=out, progress=StopAt(5))
    before = (out / "checkpoint.safetensors").read_bytes()

    def full(self: Path, data: bytes) -> int:
        with self.open("wb") as file:
            file.write(data[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(TracrlError, match=r"The disk is full: .*checkpoint.safetensors was not written"):
        fit(SMALL, small_data, limits=LIMITS, out=out, resume=True, checkpoint_seconds=0)
    monkeypatch.undo()
    assert (out / "checkpoint.safetensors").read_bytes() == before
    assert not list(out.glob(".*"))
    assert same(
        fit(SMALL, small_data, limits=LIMITS, out=out, resume=True).policy, fit(SMALL, small_data, limits=LIMITS).policy
    )


def test_a_full_disk_under_the_log_is_said(tmp_path: Path) -> None:
    log = CsvLog(tmp_path / "metrics.csv", ["step", "loss"], None)
    log._file.close()
    log._file._file = Path("/dev/full").open("wb", buffering=0)  # noqa: SIM115
    with pytest.raises(TracrlError, match=r"The disk is full: .*metrics.csv"):
        log.write({"step": 1, "loss": 0.5})


def test_cloning_everything_is_trained_once_for_all_limits(small_data: Episodes) -> None:
    run = fit(BCAll(updates=5, hidden=(8,)), small_data, limits=LIMITS, seeds=SEEDS)
    assert run.policy.metadata.limits == (3, 3, 4, 4)
    assert len(run.history) == 5 * 2
    assert np.array_equal(run.policy.tensors["weight0"][:2], run.policy.tensors["weight0"][2:])


def test_divergence_is_said(small_data: Episodes) -> None:
    with pytest.raises(TracrlError, match=r"diverged: at update .* lower the learning rate"):
        fit(BCQLag(critic_lr=1.0, hidden=(64,) * 16, batch_size=8, updates=20), small_data, limits=[4.0])


@pytest.mark.parametrize(
    ("limits", "seeds", "words"),
    [
        ([], [0], "At least one limit and one seed"),
        ([1.0], [], "At least one limit and one seed"),
        ([1.0, 1.0], [0], "--limits names a value twice"),
        ([1.0], [3, 3], "--seeds names a value twice: 3 3"),
        ([-1.0], [0], "--limits must be numbers of 0 or more"),
        ([float("nan")], [0], "--limits must be numbers of 0 or more"),
        ([1.0], [0, -1], r"--seeds is -1; expected a whole number from 0 to"),
    ],
)
def test_bad_limits_and_seeds_are_said(small_data: Episodes, limits: list[float], seeds: list[int], words: str) -> None:
    with pytest.raises(TracrlError, match=words):
        fit(SMALL, small_data, limits=limits, seeds=seeds)


def test_half_products_need_a_processor_that_has_them(small_data: Episodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: False)
    with pytest.raises(TracrlError, match="this processor has no instructions for it; use --precision float32"):
        fit(SMALL, small_data, limits=[4.0], device="cpu", precision="bfloat16")


def test_half_products_need_a_method_that_has_them(small_data: Episodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TraC, "has_bf16", False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    with pytest.raises(TracrlError, match="TraC multiplies in float32 alone; use --precision float32"):
        fit(SMALL, small_data, limits=[4.0], device="cpu", precision="bfloat16")


def test_products_are_rounded_by_themselves_only_where_scores_are_known_to_stay(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(devices, "rounds_by_itself", devices.has_bf16)  # which the tests have for GPUs alone otherwise
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    for there in (True, False):
        monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda there=there: there)
        assert choose_precision("auto", gpu, TraC()) == "bfloat16"
        assert choose_precision("auto", cpu, TraC()) == ("bfloat16" if there else "float32")
        assert {choose_precision("auto", gpu, METHODS[name]()) for name in PAPER_ORDER} == {"bfloat16"}
        assert choose_precision("auto", gpu, CAPS()) == choose_precision("auto", cpu, CAPS()) == "float32"
    assert choose_precision("bfloat16", gpu, CAPS()) == "bfloat16"
    assert choose_precision("float32", gpu, TraC()) == "float32"


def test_where_nothing_is_asked_for_a_processor_uses_what_it_has(
    small_data: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "rounds_by_itself", devices.has_bf16)
    expected = "bfloat16" if devices.has_bf16(torch.device("cpu")) else "float32"
    fit(SMALL, small_data, limits=[4.0], device="cpu", out=tmp_path / "run")
    assert RunDirectory(tmp_path / "run").read_config()["precision"] == expected


def test_half_products_train_nearly_the_same_policy(small_data: Episodes) -> None:
    runs, actions = [RunSpec(4.0, 0), RunSpec(6.0, 1)], []
    for precision in ("float32", "bfloat16"):
        with Stack(SMALL, small_data, runs, torch.device("cpu"), precision=precision) as stack:  # type: ignore[arg-type]
            stack.update(8)
            actions.append(stack.policy().act(small_data.observations[0]))
    assert not np.array_equal(*actions)
    assert np.allclose(*actions, atol=0.05)


def test_no_gpu_is_said(small_data: Episodes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TracrlError, match="no CUDA GPU on this machine; use --device cpu"):
        fit(SMALL, small_data, limits=[4.0], device="cuda")


def test_training_works_outside_the_main_thread(small_data: Episodes) -> None:
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(fit(SMALL, small_data, limits=[4.0])))
    thread.start()
    thread.join()
    assert len(results) == 1


def test_evaluated_on_the_way_final_and_best_are_kept_apart(tmp_path: Path) -> None:
    data = tracrl.load_dataset("BallRun")
    method = TraC.preset(preset="fast", updates=20, clone_updates=10, batch_size=4)
    options = {"limits": [10, 40], "evaluations": 4, "evaluator": Evaluator("BallRun", episodes=2)}
    whole = fit(method, data, out=tmp_path / "whole", **options)
    assert whole.scores is not None
    assert whole.best_scores is not None
    rows = list(csv.DictReader((tmp_path / "whole" / "evaluations.csv").open()))
    assert [int(row["step"]) for row in rows] == [5, 5, 10, 10, 15, 15, 20, 20]
    on_the_way = Evaluator("BallRun", episodes=2).evaluate(whole.policy, on_the_way=True)
    assert float(rows[-1]["return"]) == pytest.approx(on_the_way.returns[1].mean(), rel=1e-5)
    for policy, scores in ((whole.policy, whole.scores), (whole.best, whole.best_scores)):
        assert policy is not None
        again = tracrl.evaluate(policy, "BallRun", episodes=2)
        assert np.array_equal(again.returns, scores.returns)
        assert not (again.returns == on_the_way.returns).any(), (
            "the episodes that chose the best are not the final ones"
        )
    with pytest.raises(Interrupted):
        fit(method, data, out=tmp_path / "cut", progress=StopAt(12), **options)
    resumed = fit(method, data, out=tmp_path / "cut", resume=True, **options)
    for name in ("scores.json", "best_scores.json", "best.safetensors", "evaluations.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name
    assert resumed.best is not None


def test_a_last_policy_that_is_the_best_one_plays_its_final_episodes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[bool] = []
    evaluate = Evaluator.evaluate

    def counted(self: Evaluator, *given: Any, on_the_way: bool = False, **options: Any) -> Any:
        played.append(on_the_way)
        return evaluate(self, *given, on_the_way=on_the_way, **options)

    monkeypatch.setattr(Evaluator, "evaluate", counted)
    method = TraC.preset(preset="fast", updates=20, clone_updates=10, batch_size=4)
    evaluator = Evaluator("BallRun", episodes=1)
    run = fit(method, tracrl.load_dataset("BallRun"), limits=[10], evaluations=1, evaluator=evaluator)
    assert played == [True, False]
    assert run.scores is not None
    assert run.best_scores is not None
    assert np.array_equal(run.scores.returns, run.best_scores.returns)


class StopInEvaluation(Silence):
    """Presses Ctrl-C during the evaluation with this number."""

    def __init__(self, number: int):
        self.left = number

    def evaluating(self, done: int, episodes: int) -> None:
        assert self.left > 0, "went on after Ctrl-C"
        if done < episodes and self.left == 1:
            os.kill(os.getpid(), signal.SIGINT)
            self.left = 0
        elif done == episodes:
            self.left -= 1


@pytest.mark.parametrize("number", [2, 4])
def test_a_stop_does_not_wait_for_the_end_of_an_evaluation(number: int, tmp_path: Path) -> None:
    data = tracrl.load_dataset("BallRun")
    method = TraC.preset(preset="fast", updates=20, clone_updates=10, batch_size=4)
    options = {"limits": [10, 40], "evaluations": 4, "evaluator": Evaluator("BallRun", episodes=7)}
    fit(method, data, out=tmp_path / "whole", **options)
    with pytest.raises(Interrupted, match=rf"Stopped after {5 * number} of 20 updates"):
        fit(method, data, out=tmp_path / "cut", progress=StopInEvaluation(number), **options)
    fit(method, data, out=tmp_path / "cut", resume=True, **options)
    for name in ("scores.json", "best_scores.json", "best.safetensors", "policy.safetensors", "evaluations.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name


def test_scores_of_an_earlier_policy_are_not_the_final_ones(tmp_path: Path) -> None:
    data = tracrl.load_dataset("BallRun")
    method = TraC.preset(preset="fast", updates=20, clone_updates=10, batch_size=4)
    options = {"limits": [10, 40], "evaluations": 4, "out": tmp_path / "run"}
    with pytest.raises(Interrupted):
        fit(method, data, evaluator=Evaluator("BallRun", episodes=2), progress=StopAt(12), **options)
    unscored = fit(method, data, resume=True, **options)
    assert unscored.scores is None
    assert not (tmp_path / "run" / "scores.json").exists()
    assert unscored.best is not None


def test_resumed_with_more_episodes_the_best_are_scored_alike(tmp_path: Path) -> None:
    data = tracrl.load_dataset("BallRun")
    method = TraC.preset(preset="fast", updates=20, clone_updates=10, batch_size=4)
    options = {"limits": [10, 40], "evaluations": 4, "out": tmp_path / "run"}
    with pytest.raises(Interrupted):
        fit(method, data, evaluator=Evaluator("BallRun", episodes=1), progress=StopAt(12), **options)
    resumed = fit(method, data, evaluator=Evaluator("BallRun", episodes=3), resume=True, **options)
    assert resumed.scores is not None
    assert resumed.best_scores is not None
    assert resumed.scores.returns.shape == resumed.best_scores.returns.shape == (2, 3)


@pytest.mark.parametrize("times", [1, 9])
def test_a_simulator_process_that_dies_is_replaced_once_then_the_training_is_kept(
    small_data: Episodes, tmp_path: Path, times: int
) -> None:
    deaths = tmp_path / "deaths"
    deaths.mkdir()

    def evaluator(most: int) -> Evaluator:
        return Evaluator(functools.partial(DyingEnv, deaths, most), episodes=2, workers=1)

    options = {"limits": LIMITS, "evaluations": 1, "out": tmp_path / "run"}
    if times > 1:
        words = r"DyingEnv died.*another one that was given the same work died too.*30 of 30 updates.*--resume"
        with pytest.raises(TracrlError, match=words):
            fit(SMALL, small_data, evaluator=evaluator(times), **options)
        assert Checkpoint.load(tmp_path / "run" / "checkpoint.safetensors").step == 30
        assert not (tmp_path / "run" / "policy.safetensors").exists()
    run = fit(SMALL, small_data, evaluator=evaluator(1 if times == 1 else 0), resume=times > 1, **options)
    assert run.scores is not None
    assert len(list(deaths.iterdir())) == (1 if times == 1 else 2)
    assert same(run.policy, fit(SMALL, small_data, limits=LIMITS).policy)


def test_the_run_directory_says_where_and_in_which_precision_it_was_trained(
    small_data: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    with pytest.raises(Interrupted):
        fit(SMALL, small_data, limits=LIMITS, out=out, device="cpu", progress=StopAt(5))
    config = RunDirectory(out).read_config()
    assert (config["device"], config["precision"]) == ("cpu", "float32")
    with pytest.raises(TracrlError, match=r"holds a run that is trained in float32, not in bfloat16: choose another"):
        fit(SMALL, small_data, limits=LIMITS, out=out, device="cpu", precision="bfloat16", resume=True)
    (out / "config.json").write_text(json.dumps({**config, "device": "cuda (a GPU)"}))
    fit(SMALL, small_data, limits=LIMITS, out=out, device="cpu", resume=True)
    assert RunDirectory(out).read_config()["device"] == "cuda (a GPU), then cpu"


def test_a_resumed_run_keeps_its_precision(
    small_data: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "run"
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    short = replace(SMALL, updates=4, clone_updates=2)
    with pytest.raises(Interrupted):
        fit(short, small_data, limits=[4.0], out=out, device="cpu", precision="bfloat16", progress=StopAt(1))
    fit(short, small_data, limits=[4.0], out=out, device="cpu", resume=True)
    assert RunDirectory(out).read_config()["precision"] == "bfloat16"
    assert fit(BCAll(updates=2), small_data, limits=[4.0], out=tmp_path / "bc", precision="bfloat16").directory
    assert RunDirectory(tmp_path / "bc").read_config()["precision"] == "bfloat16", "other methods have them too"


def test_a_run_from_before_device_and_precision_were_recorded_goes_on(small_data: Episodes, tmp_path: Path) -> None:
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        fit(SMALL, small_data, limits=LIMITS, out=out, device="cpu", progress=StopAt(5))
    config = RunDirectory(out).read_config()
    for key in ("device", "precision", "environment"):
        del config[key]
    (out / "config.json").write_text(json.dumps(config))
    there = Checkpoint.load(out / "checkpoint.safetensors")
    header = {key: value for key, value in there.metadata.items() if key != "pending_evaluation"}
    Checkpoint(there.step, there.tensors, {**header, "owed": None, "scores": None}).save(out / "checkpoint.safetensors")
    resumed = fit(SMALL, small_data, limits=LIMITS, out=out, device="cpu", resume=True)
    assert same(resumed.policy, fit(SMALL, small_data, limits=LIMITS, device="cpu").policy)
    assert RunDirectory(out).read_config() == config


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ([], "it holds no object"),
        ({"settings": 3}, "its settings is 3"),
        ({"limits": None}, "its limits is None"),
        ({"data": "BallRun"}, "its data is 'BallRun'"),
        ({"method": ["trac"]}, r"its method is \['trac'\]"),
    ],
)
def test_a_configuration_of_another_shape_is_said(
    small_data: Episodes, tmp_path: Path, change: object, words: str
) -> None:
    out = tmp_path / "run"
    with pytest.raises(Interrupted):
        fit(SMALL, small_data, limits=LIMITS, out=out, progress=StopAt(5))
    config = RunDirectory(out).read_config()
    (out / "config.json").write_text(json.dumps({**config, **change} if isinstance(change, dict) else change))
    with pytest.raises(TracrlError, match=rf"config.json was not written by tracrl, or was edited: {words}"):
        fit(SMALL, small_data, limits=LIMITS, out=out, resume=True)


class MarkAt(Silence):
    """Puts a file somewhere after so many updates."""

    def __init__(self, step: int, mark: Path):
        self.at, self.mark = step, mark

    def advance(self, step: int, phase: str, loss: torch.Tensor) -> None:
        if step >= self.at:
            self.mark.touch()


@pytest.mark.parametrize("at", [20, 30])
def test_a_simulator_that_dies_costs_no_update(
    at: int, small_data: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "mark"
    monkeypatch.setenv("MORTAL", str(mark))
    options = {"limits": [4.0], "evaluator": Evaluator("tiny_envs:Mortal", episodes=2, workers=1), "evaluations": 3}
    fit(SMALL, small_data, out=tmp_path / "whole", **options)
    with pytest.raises(
        TracrlError,
        match=rf"A simulator process of tiny_envs:Mortal died: .* kept in .*cut, with {at} of 30 updates.*--resume",
    ):
        fit(SMALL, small_data, out=tmp_path / "cut", progress=MarkAt(at, mark), **options)
    there = Checkpoint.load(tmp_path / "cut" / "checkpoint.safetensors")
    assert (there.step, there.metadata["pending_evaluation"]) == (at, "classification")
    mark.unlink()
    fit(SMALL, small_data, out=tmp_path / "cut", resume=True, **options)
    for name in ("scores.json", "best_scores.json", "best.safetensors", "policy.safetensors", "evaluations.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "cut" / name).read_bytes(), name


@pytest.mark.parametrize("number", [None, 22, 30])
def test_evaluated_beside_the_training_the_result_is_the_same(
    number: int | None, small_data: Episodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it runs through, or is stopped while an evaluation is still being played, and resumed."""

    def train(out: str, **options: Any) -> None:
        evaluator = Evaluator("tiny_envs:Field", episodes=2, workers=1)
        fit(SMALL, small_data, limits=[4.0], out=tmp_path / out, evaluator=evaluator, evaluations=3, **options)

    train("whole")
    if number is not None:
        monkeypatch.setattr(Loop, "evaluate", unfinished(Loop.evaluate))
        with pytest.raises(Interrupted):
            train("beside", evaluate_beside=True, progress=StopAt(number))
        monkeypatch.undo()
        there = Checkpoint.load(tmp_path / "beside" / "checkpoint.safetensors")
        assert (there.step, there.metadata["pending_step"]) == ((22, 20) if number == 22 else (30, 30))
        # As if it had been killed later, when the evaluation was logged and no checkpoint knew.
        shutil.copy(tmp_path / "whole" / "evaluations.csv", tmp_path / "beside" / "evaluations.csv")
    train("beside", evaluate_beside=True, resume=True)
    for name in ("scores.json", "best_scores.json", "best.safetensors", "policy.safetensors", "evaluations.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "beside" / name).read_bytes(), name


def unfinished(evaluate: Callable[..., None]) -> Callable[..., None]:
    """Evaluations on the way that are still being played until they have to be waited for."""

    def patient(self: Loop, stop: threading.Event, wait: bool = True) -> None:
        if wait:
            evaluate(self, stop, wait)

    return patient


def test_evaluated_in_an_environment_of_ones_own(small_data: Episodes, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run = fit(SMALL, small_data, limits=[4.0], out=out, evaluator=Evaluator("tiny_envs:Field", episodes=2))
    assert run.scores is not None
    assert run.scores.task is None
    [*_, last] = csv.DictReader((out / "evaluations.csv").open())
    assert last["normalised_reward"] == ""
    assert float(last["return"]) != 0
    assert RunDirectory(out).environment() == EnvSpec("tiny_envs:Field")
    other = Evaluator(EnvSpec("tiny_envs:Field", max_steps=3), episodes=2)
    with pytest.raises(TracrlError, match=r"evaluated in tiny_envs:Field \(.*max steps None\), not in .*max steps 3"):
        fit(SMALL, small_data, limits=[4.0], out=out, evaluator=other, resume=True)


def test_an_environment_that_does_not_fit_is_said_before_anything_is_trained(
    small_data: Episodes, tmp_path: Path
) -> None:
    with pytest.raises(TracrlError, match="actions have size 2, but tiny_envs:Road takes 1"):
        fit(SMALL, small_data, limits=[4.0], out=tmp_path / "run", evaluator=Evaluator("tiny_envs:Road"))
    assert not (tmp_path / "run").exists()
