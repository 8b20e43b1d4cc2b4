"""A run directory explains itself: what was trained, on what, with what, and what came out.

====================== ==========================================================================
claim.json             the process that is at work here, while it is
config.json            method, settings, limits, seeds, data set and its fingerprint, environment, device,
                       precision, versions
metrics.csv            losses and the like, a line for each run at each logged step
evaluations.csv        scores in the simulator along the training
checkpoint.safetensors everything that training goes on from
policy.safetensors     the final policies; there only when training is finished
best.safetensors       of each run the best policy that was evaluated on the way
scores.json            every evaluation episode of the final policies
best_scores.json       and of the best ones
further_scores.json    of the final policies at limits beyond the training's own, where one serves every limit
estimates.json         what they will return and cost, estimated from a log alone
calibrated.safetensors of a policy for every limit: at the inner limits that the log chose for the wanted ones
calibration.json       these choices, and what they rest on
out_of_data.json       how often they do what no logged step was like
checksums.json         of the results, so that an edited file is noticed (seal.json in version 0.4.0)
scores.png, curves.png pictures of both
estimates.png          and of the estimates
tensorboard/           the same numbers for TensorBoard
====================== ==========================================================================
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import tracrl
from tracrl.data.holdout import Holdout
from tracrl.envs.environment import EnvSpec
from tracrl.errors import TracrlError
from tracrl.files import read_json, write_json
from tracrl.methods.method import Method, RunSpec
from tracrl.methods.registry import METHODS, current_settings, known_method, metadata_to_store, original_settings


class DataSet(Protocol):
    """As much of a data set as is written down about it: its episodes themselves, or what is known of them."""

    def __len__(self) -> int: ...

    @property
    def fingerprint(self) -> str: ...

    @property
    def rows(self) -> int: ...

    @property
    def task(self) -> str | None: ...

    @property
    def metadata(self) -> Mapping[str, Any]: ...


_CONFIG: dict[str, type | tuple[type, ...]] = {
    "method": str,
    "settings": dict,
    "limits": list,
    "seeds": list,
    "data": dict,
    "task": (str, type(None)),
    "data_source": dict,
    "versions": dict,
}
"""What every config.json holds, in every version."""


@dataclass(frozen=True)
class RunDirectory:
    """The files of one stack of runs."""

    path: Path

    @property
    def claim(self) -> Path:
        return self.path / "claim.json"

    @property
    def config(self) -> Path:
        return self.path / "config.json"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint.safetensors"

    @property
    def policy(self) -> Path:
        return self.path / "policy.safetensors"

    @property
    def best(self) -> Path:
        return self.path / "best.safetensors"

    @property
    def scores(self) -> Path:
        return self.path / "scores.json"

    @property
    def best_scores(self) -> Path:
        return self.path / "best_scores.json"

    @property
    def further_scores(self) -> Path:
        return self.path / "further_scores.json"

    @property
    def calibrated(self) -> Path:
        return self.path / "calibrated.safetensors"

    @property
    def calibration(self) -> Path:
        return self.path / "calibration.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.csv"

    @property
    def evaluations(self) -> Path:
        return self.path / "evaluations.csv"

    @property
    def estimates(self) -> Path:
        return self.path / "estimates.json"

    @property
    def out_of_data(self) -> Path:
        return self.path / "out_of_data.json"

    @property
    def warnings(self) -> Path:
        return self.path / "warnings.json"

    @property
    def finished(self) -> bool:
        return self.policy.exists()

    def check(self, config: Mapping[str, Any], resume: bool) -> None:
        """A run may begin here, or what lies here is the same run and may go on. Writes nothing."""
        if not self.config.exists():
            # What a process leaves that is killed before its first whole file is no content.
            if self.path.exists() and (
                not self.path.is_dir()
                or any(file != self.claim and file.suffix != ".part" for file in self.path.iterdir())
            ):
                raise TracrlError(f"{self.path} is there already and holds no run: choose another --out.")
            return
        there = self.read_config()
        if not resume:
            state = "a finished run" if self.finished else "a run that can go on"
            raise TracrlError(f"{self.path} holds {state}: go on with --resume, or choose another --out.")
        if there.get("identity") == config["identity"]:
            self._check_unchanged(there, config)
            return
        stored = dict(there)
        if isinstance(there.get("settings"), dict):
            stored["settings"] = current_settings(known_method(str(there.get("method"))), there["settings"])
        for key in ("method", "settings", "limits", "seeds", "data"):
            if stored.get(key) != config[key]:
                raise TracrlError(
                    f"{self.path} holds another run, whose {_difference(key, stored.get(key), config[key])}: "
                    "choose another --out."
                )
        if there.get("identity") == identity_of(there):  # the same values, written otherwise: 50 and 50.0
            return
        raise TracrlError(f"{self.config} was edited: its identity does not match its contents; choose another --out.")

    def begin(self, config: Mapping[str, Any], resume: bool) -> None:
        """Say what is trained here, unless another process came in between since it was checked."""
        self.check(config, resume)
        if not self.config.exists():
            write_json(self.config, config)
            return
        there = self.read_config()
        before, now = there.get("device"), config.get("device")
        if before is not None and now is not None and str(before).rpartition(", then ")[2] != now and not self.finished:
            write_json(self.config, {**there, "device": f"{before}, then {now}"})

    def read_config(self) -> dict[str, Any]:
        """What is trained here; one sentence where the file is of another shape."""
        config = read_json(self.config)
        if not isinstance(config, dict):
            raise TracrlError(f"{self.config} was not written by tracrl, or was edited: it holds no object.")
        for key, kind in _CONFIG.items():
            if not isinstance(config.get(key), kind):
                found = f"is {config[key]!r:.60}" if key in config else "is missing"
                raise TracrlError(
                    f"{self.config} was not written by tracrl, or was edited: its {key} {found}; restore it, or remove "
                    "the run."
                )
        return config

    def read_warnings(self) -> tuple[str, ...]:
        """What looked dead about the policies when their training ended."""
        if not self.warnings.exists():
            return ()
        found = read_json(self.warnings)
        if not isinstance(found, list) or not all(isinstance(sentence, str) for sentence in found):
            raise TracrlError(f"{self.warnings} holds no list of sentences: it was edited; remove it or train again.")
        return tuple(found)

    def standardised(self) -> bool | None:
        """Whether this training standardises observations; None where there is none yet."""
        return standardises(self.read_config()) if self.config.exists() else None

    def precision(self) -> str | None:
        """Of the products in this training; None where there is none yet, or it is of version 0.4 or earlier."""
        found = self.read_config().get("precision") if self.config.exists() else None
        return None if found is None else str(found)

    def _check_unchanged(self, there: Mapping[str, Any], config: Mapping[str, Any]) -> None:
        """What is no part of a run's identity, because a study plans runs before it knows where they are trained, but
        must not change on the way either."""
        for key, what in (("precision", "trained in"), ("environment", "evaluated in")):
            before, now = there.get(key), config.get(key)
            if before is not None and now is not None and before != now:
                raise TracrlError(
                    f"{self.path} holds a run that is {what} {_words(before)}, not in {_words(now)}: "
                    "choose another --out."
                )

    def environment(self) -> EnvSpec | None:
        """What the run is evaluated in; None where it has not been."""
        found = self.read_config().get("environment")
        try:
            return None if found is None else EnvSpec(**found)
        except TypeError as error:
            raise TracrlError(f"{self.config} was edited: its environment is {found!r:.80}; restore it.") from error


def describe(
    method: Method,
    data: DataSet,
    runs: Sequence[RunSpec],
    limits: Sequence[float],
    seeds: Sequence[int],
    standardise: bool = False,
) -> dict[str, Any]:
    """What config.json holds. The identity depends on what determines the result and on nothing else."""
    what = {
        "method": method.name,
        "settings": json.loads(json.dumps(asdict(method))) | ({"standardise": "on"} if standardise else {}),
        "limits": [float(limit) for limit in limits],
        "seeds": [int(seed) for seed in seeds],
        "data": {
            "fingerprint": data.fingerprint,
            "episodes": len(data),
            "rows": data.rows,
            "task": None if data.task is None else str(data.task),
        },
    }
    parted = Holdout.of(data.metadata)
    return {
        "identity": identity_of(what),
        **what,
        "method_metadata": metadata_to_store(method),
        "task": data.task,
        **({} if parted is None or parted.trained != data.fingerprint else {"holdout": asdict(parted)}),
        "data_source": {k: v for k, v in data.metadata.items() if k in ("file", "made_by", "task")},
        "trained": [asdict(run) for run in runs],
        "versions": {
            "tracrl": tracrl.__version__,
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in ("torch", "numpy", "gymnasium")},
        },
    }


def identity_of(config: Mapping[str, Any]) -> str:
    """The identity that belongs to the contents of a config.json: settings under their first names, whatever they
    are called now, so that a run keeps its identity."""
    what = {key: config[key] for key in ("method", "settings", "limits", "seeds", "data")}
    what["settings"] = original_settings(METHODS.get(str(config["method"])), config["settings"])
    return hashlib.blake2b(json.dumps(what, sort_keys=True).encode(), digest_size=8).hexdigest()


def standardises(config: Mapping[str, Any]) -> bool:
    """Whether the training of a config.json standardises observations."""
    return config["settings"].get("standardise") == "on"


def default_directory(
    method: Method, data: DataSet, limits: Sequence[float], seeds: Sequence[int], standardise: bool = False
) -> Path:
    """``runs/<task or file>-<method>-<identity>``: the same training finds its own directory again."""
    identity = describe(method, data, [], limits, seeds, standardise)["identity"]
    return Path("runs") / f"{data_label(data.task, data.metadata)}-{method.name}-{identity}"


def data_label(task: str | None, source: Mapping[str, Any]) -> str:
    """What data are called in names of folders and tables: their task, else their file."""
    return re.sub(r"[^\w.-]+", "-", str(task or Path(str(source.get("file", "data"))).stem)).lstrip(".-")


def _words(values: Any) -> str:
    """``my_package:MyEnv (cost key cost, max steps 100)``"""
    if not isinstance(values, dict):
        return str(values)
    more = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in values.items() if key != "name")
    return f"{values.get('name')} ({more})"


def _difference(key: str, there: Any, here: Any) -> str:
    if isinstance(there, dict) and isinstance(here, dict):
        field = next(k for k in {**here, **there} if there.get(k) != here.get(k))
        return f"{key} differ in {field} ({there.get(field)!r} there, {here.get(field)!r} here)"
    return f"{key} are different ({there!r} there, {here!r} here)"
