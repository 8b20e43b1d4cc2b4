"""A slice of the benchmark on one machine: collect, train on its GPU and evaluate on its cores, side by side.

    python tools/benchmark_slice.py WORK --seconds 3000 --collect PointCircle1:2000000:1000:3 --train BallRun

Everything lies in WORK, and the same command goes on where it stopped. ``--collect TASK:STEPS:EPISODES:PROCESSES``,
or with ``:BITS`` of the observations at its end, makes the data of a task; ``--train TASK`` takes those at hand. Each
task is trained by the ``--stacks`` with three seeds at its limits, and every final policy plays 20 episodes. Afterwards
come those of ``--also TASK=METHOD:PRESET``, with ``:SETTING=VALUE`` at the end for an ablation; ``TASK.off`` is one of
``--unstandardised`` in plain units. At the end ``--out`` holds ``results.tar.gz``: run directories without policies and
checkpoints, what the data hold, and how long each job took; and, as far as a rented machine gives back files, the data
to ``--keep`` in parts, then policies.
The small ones are written anew whenever a collection or an evaluation is done. A learner that was stopped before any of
its episodes were candidates comes back too, in ``parts.tar``: unpacked into WORK, it goes on there, on any machine.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

SEEDS = (0, 10, 20)
EPISODES, CURVE_EPISODES = 20, 5
MIDDLE = {"updates": 20_000, "clone_updates": 6_000, "batch_size": 32, "bc_lr": 3e-4, "lr": 3e-5}
"""TraC's fast preset, but slower: for tasks on which that is not yet safe."""
STACKS = ("trac:fast", "bc-safe:fast", "bc-all:fast", "trac:middle")
BITS, LATER = 24, 500
FILES, TOGETHER, PART = 8, 62 * 2**20, 15 * 2**20
"""What a rented machine gives back: so many files, so many bytes, and in one file."""


@dataclass
class Job:
    """One process of the slice: what it runs, what it needs, and the file that says it is done."""

    name: str
    words: list[str]
    done: Path
    cores: int
    after: Path | None = None
    """a file that must be there first"""
    gpu: bool = False
    rank: int = 0
    """the lowest first"""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    began: float = 0.0
    tries: int = 0

    @property
    def collects(self) -> bool:
        return self.words[0] == "collect"

    @property
    def long(self) -> bool:
        return self.gpu and self.words[-1].endswith(":full")

    @property
    def ready(self) -> bool:
        return self.process is None and self.tries < 2 and (self.after is None or self.after.exists())


def jobs_of(work: Path, options: argparse.Namespace) -> Iterator[Job]:
    """All jobs of the slice."""
    collected = [entry.split(":") for entry in options.collect]
    for rank, (task, steps, episodes, processes, *bits) in enumerate(collected):
        words = [str(work), task, steps, episodes, processes, bits[0] if bits else str(BITS)]
        words = ["collect", *words, str(int(task in options.even))]
        yield Job(f"collect {task}", words, data_of(work, task), int(processes), rank=1000 + rank)
    tasks = [task for task in (*options.train, *(entry[0] for entry in collected)) if task not in options.untrained]
    # task, data, folder of the runs, units
    sources = [(task, task, task, "on" if task in options.standardise else "auto") for task in tasks]
    sources += [(task, f"{task}-even", f"{task}-even", "auto") for task in tasks if task in options.even]
    sources += [(task, task, f"{task}.off", "off") for task in tasks if task in options.unstandardised]
    wanted = [(rank, *source, stack) for rank, source in enumerate(sources) for stack in options.stacks]
    of_folder = {source[2]: source for source in sources}
    also = [entry.partition("=")[::2] for entry in options.also]
    wanted += [(LATER + rank, *of_folder[folder], stack) for rank, (folder, stack) in enumerate(also)]
    for rank, task, source, folder, units, stack in wanted:
        data = data_of(work, source) if source != task or task not in options.train else None
        run = work / "runs" / folder / stack.replace(":", "-")
        trained = run / "training.json"  # written when the policies are there
        curve = folder in options.curves and stack in ("trac:fast", "trac:full")
        words = ["train", str(work), task, source, folder, units, str(int(curve)), stack]
        yield Job(f"train {folder} {run.name}", words, trained, 1, data, gpu=True, rank=rank)
        words = ["evaluate", str(run), task, str(options.players)]
        yield Job(f"evaluate {folder} {run.name}", words, run / "scores.json", options.players, trained, rank=rank)


def data_of(work: Path, source: str) -> Path:
    return work / "data" / f"{source}.hdf5"


def run_slice(options: argparse.Namespace) -> None:
    """Start what fits, wait, and stop at the deadline."""
    began = time.monotonic()
    work: Path = options.work
    (work / "logs").mkdir(parents=True, exist_ok=True)
    jobs = sorted(jobs_of(work, options), key=lambda job: job.rank)
    running: list[Job] = []
    while time.monotonic() - began < options.seconds:
        ended = [job for job in running if job.process is not None and job.process.poll() is not None]
        for job in ended:
            running.remove(job)
            finish(job, work)
        if options.out is not None and any(not job.gpu for job in ended):
            pack_results(work, options.out)
        late = time.monotonic() - began > options.collect_until
        waiting = [job for job in jobs if job.ready and not job.done.exists() and not (late and job.collects)]
        if not running and not waiting:
            break
        for job in waiting:
            busy = sum(other.cores for other in running)
            on_gpu = sum(other.gpu for other in running)
            long = sum(other.long for other in running)
            if busy + job.cores > options.cores or (job.gpu and on_gpu >= options.trainers):
                continue
            if job.long and long >= max(1, options.trainers // 2):
                continue
            start(job, work)
            running.append(job)
        time.sleep(0.5)
    for job in running:
        assert job.process is not None
        os.killpg(job.process.pid, signal.SIGKILL)
    if options.out is not None:
        pack(work, options.out, options.keep, int(options.room * 2**20))
        print(json.dumps({"left": [job.name for job in jobs if not job.done.exists()]}), flush=True)


def start(job: Job, work: Path) -> None:
    log = log_of(job, work).open("ab")
    job.process = subprocess.Popen(
        [sys.executable, __file__, *job.words], stdout=log, stderr=log, start_new_session=True
    )
    job.began, job.tries = time.monotonic(), job.tries + 1


def log_of(job: Job, work: Path) -> Path:
    return work / "logs" / f"{job.name.replace(' ', '-').replace(':', '-')}.log"


def finish(job: Job, work: Path) -> None:
    assert job.process is not None
    line = {"job": job.name, "seconds": round(time.monotonic() - job.began, 1), "code": job.process.returncode}
    if job.process.returncode:
        print(log_of(job, work).read_text(errors="replace")[-600:])
    job.process = None
    print(json.dumps(line), flush=True)
    with (work / "timing.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def pack_results(work: Path, out: Path) -> int:
    """Everything that is small; returns its size."""
    out.mkdir(parents=True, exist_ok=True)
    made = out / "results.tar.gz.new"
    with tarfile.open(made, "w:gz", compresslevel=6) as tar:
        for path in sorted(work.rglob("*")):
            if path.suffix not in (".json", ".jsonl", ".csv", ".log", ".npz") or ".part" in str(path):
                continue
            with suppress(FileNotFoundError):  # jobs go on, and take away what is theirs
                if path.is_file() and path.stat().st_size < 4_000_000:
                    tar.add(path, path.relative_to(work))
    made.replace(out / "results.tar.gz")
    return (out / "results.tar.gz").stat().st_size


def pack_learners(work: Path, out: Path) -> int:
    """The learners of collections that have no candidates yet, and so nothing else to go on from; returns the size."""
    begun = [part for part in sorted((work / "data").glob("*.hdf5.part")) if (part / "recipe.json").exists()]
    alone = [part for part in begun if [path.name for path in part.glob("*.safetensors")] == ["learner.safetensors"]]
    if not alone:
        return 0
    with tarfile.open(out / "parts.tar", "w") as tar:
        for path in (part / name for part in alone for name in ("recipe.json", "learner.safetensors")):
            tar.add(path, path.relative_to(work))
    return (out / "parts.tar").stat().st_size


def pack(work: Path, out: Path, keep: list[str], room: int = TOGETHER) -> None:
    """Everything that is small; then unfinished learners, the data to keep, and policies, unevaluated ones first."""
    room -= pack_results(work, out) + pack_learners(work, out)
    files = FILES - len(list(out.iterdir()))
    for task in keep:
        path, sent = data_of(work, task), work / "sent" / task
        if not path.exists() or sent.exists():
            continue
        content = path.read_bytes()
        parts = [content[start : start + PART] for start in range(0, len(content), PART)]
        if len(parts) > files or len(content) > room:
            continue
        for number, part in enumerate(parts):
            (out / f"{path.name}.{number}").write_bytes(part)
        files, room = files - len(parts), room - len(content)
        sent.parent.mkdir(exist_ok=True)
        sent.touch()
    policies = sorted(work.glob("runs/*/*/policy.safetensors"), key=lambda p: (p.with_name("scores.json").exists(), p))
    wanted = [p for p in policies if not p.with_name("scores.json").exists() or "trac" in p.parent.name]
    for number in range(files):
        fits = min(PART, room) - 100_000
        taken: list[Path] = []
        for path in wanted:  # one that is too large does not keep back those behind it
            if sum(p.stat().st_size + 2_000 for p in (*taken, path)) < fits:
                taken.append(path)
        if not taken:
            break
        with tarfile.open(out / f"policies{number}.tar", "w") as tar:
            for path in taken:
                tar.add(path, path.relative_to(work))
        wanted = [path for path in wanted if path not in taken]
        room -= (out / f"policies{number}.tar").stat().st_size


def collect_data(work: str, task: str, steps: str, episodes: str, processes: str, bits: str, even: str) -> None:
    """The data of a task; ``even``: beside them another choice from the same candidates, spread evenly."""
    from tracrl.cli.console import console
    from tracrl.collect import run as collecting
    from tracrl.collect.progress import Terminal

    os.nice(5)  # what is trained and evaluated is nearer to its end
    path = data_of(Path(work), task)
    path.parent.mkdir(parents=True, exist_ok=True)
    if int(even):
        keep_candidates(collecting, Path(work), task, int(episodes))
    collecting.collect(
        task,
        steps=int(steps),
        episodes=int(episodes),
        out=path,
        workers=int(processes),
        resume=True,
        compact=True,
        observation_bits=int(bits),
        progress=Terminal(console),
    )
    describe_data(Path(work), task)


def keep_candidates(collecting: Any, work: Path, task: str, episodes: int) -> None:
    """Have the collection also write an evenly thinned data set, as before there was a front."""
    from tracrl.collect.thinning import thin
    from tracrl.data.hdf5 import write_hdf5
    from tracrl.tasks.table import get_task

    make = collecting._episodes

    def episodes_of(*given: Any) -> Any:
        candidates = make(*given)
        limits = get_task(task).limits
        kept = thin(candidates.total_costs, candidates.returns, episodes, limits=limits, front=0.0)
        chosen = replace(candidates.select(kept), metadata={"task": task, "made_by": "evenly thinned"})
        write_hdf5(chosen, data_of(work, f"{task}-even"), compact=True)
        describe_data(work, f"{task}-even")
        return candidates

    collecting._episodes = episodes_of


def describe_data(work: Path, source: str) -> None:
    """What the data hold, and the cost and return of each episode."""
    import numpy as np

    from tracrl.data.locate import load_dataset
    from tracrl.data.summary import summarise

    data = load_dataset(data_of(work, source), task=source.removesuffix("-even"))
    (work / "data" / f"{source}.json").write_text(json.dumps(asdict(summarise(data)), indent=1))
    np.savez_compressed(work / "data" / f"{source}.npz", costs=data.total_costs, returns=data.returns)


def train_stack(
    work: str, task: str, source: str, folder: str, standardise: Literal["auto", "on", "off"], curve: str, stack: str
) -> None:
    """Nine runs of a method on the GPU; for a ``curve`` they are scored ten times on the way."""
    import torch

    from tracrl.data.locate import load_dataset
    from tracrl.evaluation.evaluate import Evaluator
    from tracrl.tasks.table import get_task
    from tracrl.train.fit import fit

    file = data_of(Path(work), source)
    data = load_dataset(file, task=task) if file.exists() else load_dataset(task)
    known = get_task(task)
    name, preset, *changes = stack.split(":")
    method = method_of(name, preset, known.suite, changes)
    out = Path(work) / "runs" / folder / stack.replace(":", "-")
    began = time.monotonic()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    evaluator = Evaluator(task, episodes=CURVE_EPISODES, workers=CURVE_EPISODES) if int(curve) else None
    fit(
        method,
        data,
        limits=known.limits,
        seeds=SEEDS,
        out=out,
        resume=True,
        device=device,
        standardise=standardise,
        evaluator=evaluator,
    )
    (out / "scores.json").unlink(missing_ok=True)  # of the curve's few episodes
    (out / "checkpoint.safetensors").unlink(missing_ok=True)
    facts = {"method": name, "preset": preset, "changes": " ".join(changes)}
    facts |= {"seconds": round(time.monotonic() - began, 1), "device": device, "torch": torch.__version__}
    if device == "cuda":
        facts["machine"] = torch.cuda.get_device_name()
    (out / "training.json").write_text(json.dumps(facts))


def method_of(name: str, preset: str, suite: str, changes: Sequence[str] = ()) -> Any:
    """A preset of ours, or the one in the middle, with ``changes`` such as x=25."""
    from tracrl.methods.registry import get_method
    from tracrl.study.settings import changed, parse_settings

    kind = get_method(name)
    method: Any = kind.preset(suite, "full" if preset == "full" else "fast")
    if preset == "middle":
        longer = {key: int(MIDDLE[key] * method.updates / 10_000) for key in ("updates", "clone_updates")}
        method = replace(method, **{**MIDDLE, **longer})
    return changed(method, parse_settings(changes, [kind]).get(name, {}))


def evaluate_run(run: str, task: str, processes: str) -> None:
    """20 episodes of every final policy. One that does not depend on the limit plays once for all limits."""
    import numpy as np

    from tracrl.evaluation.evaluate import evaluate
    from tracrl.policies.load import load_policy

    policy = load_policy(Path(run))
    once = "bc-all" in run
    playing = policy[list(range(len(SEEDS)))] if once else policy
    scores = evaluate(playing, task, episodes=EPISODES, workers=int(processes))
    if once:
        times = (len(policy) // len(SEEDS), 1)
        scores = replace(
            scores,
            limits=policy.metadata.limits,
            seeds=policy.metadata.seeds,
            returns=np.tile(scores.returns, times),
            costs=np.tile(scores.costs, times),
            lengths=np.tile(scores.lengths, times),
        )
    scores.save(Path(run) / "scores.json")


STEPS: dict[str, Callable[..., None]] = {"collect": collect_data, "train": train_stack, "evaluate": evaluate_run}


def main() -> None:
    if sys.argv[1:] and sys.argv[1] in STEPS:
        return STEPS[sys.argv[1]](*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--cores", type=int, default=os.cpu_count())
    parser.add_argument("--players", type=int, default=4, help="simulator processes of an evaluation")
    parser.add_argument("--trainers", type=int, default=3, help="trainings side by side on the GPU")
    parser.add_argument("--collect", nargs="*", default=[], metavar="TASK:STEPS:EPISODES:PROCESSES[:BITS]")
    parser.add_argument("--train", nargs="*", default=[], help="tasks whose data are at hand")
    parser.add_argument("--untrained", nargs="*", default=[], help="tasks of which only the data are wanted")
    parser.add_argument("--stacks", nargs="*", default=STACKS, metavar="METHOD:PRESET", help="what is trained")
    parser.add_argument("--standardise", nargs="*", default=[], help="tasks to train in units of their own data")
    parser.add_argument("--unstandardised", nargs="*", default=[], help="of these, tasks to train in plain units too")
    parser.add_argument("--collect-until", type=float, default=1e9, help="seconds after which no collection starts")
    parser.add_argument("--room", type=float, default=TOGETHER / 2**20, help="MiB that may be given back")
    parser.add_argument("--keep", nargs="*", default=[], help="tasks whose data are to be given back")
    parser.add_argument("--even", nargs="*", default=[], help="tasks to train on evenly thinned data as well")
    parser.add_argument("--curves", nargs="*", default=[], help="tasks whose TraC is scored ten times on the way")
    parser.add_argument("--also", nargs="*", default=[], metavar="TASK=METHOD:PRESET[:SETTING=VALUE]")
    return run_slice(parser.parse_args())


if __name__ == "__main__":
    main()
