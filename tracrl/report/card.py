"""A page about the policies of a run, for whoever is to use them: what they learnt from, what they cost, how to load
them. It says what is known of their safety and what that rests on, or that nothing is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import tracrl
from tracrl.data.holdout import Holdout
from tracrl.deploy.about import Known
from tracrl.deploy.kinds import LimitRangeExporter, exporter_of
from tracrl.errors import TracrlError
from tracrl.files import replacing
from tracrl.ope.estimates import ASSUMPTIONS, Estimates
from tracrl.ope.inner_limits import HEADS, Calibration
from tracrl.report.results import nearest_preset
from tracrl.tasks.table import all_tasks
from tracrl.train.directory import RunDirectory
from tracrl.train.finished import RunMetadata, read_metadata

PICTURES = {"estimates.png": "Estimated return and cost with their intervals", "scores.png": "Played episodes"}


def write_card(path: Path, out: Path | None = None) -> Path:
    """Write the card of a run directory, as card.md in it; the card's path."""
    if not path.is_dir():
        raise TracrlError(f"{path} is no run directory: a card is made of what a run directory knows.")
    run, known = read_metadata(path), Known.of(path)
    out = out or path / "card.md"
    with replacing(out) as aside:
        text = "\n".join(_lines(run, known, out)).rstrip() + "\n"
        aside.write_bytes(text.encode("utf-8", "backslashreplace"))
    return out


def _lines(run: RunMetadata, known: Known, out: Path) -> Iterator[str]:
    data = run.data_source.get("file", "a file without a name")
    yield f"# {_text(run.title)} on {_text(run.task or data)}"
    yield ""
    yield f"{_count(len(known.policy), 'policy', 'policies')}, described by tracrl {tracrl.__version__}."
    yield ""
    for sentence in known.warnings:
        yield f"> **Warning:** {_text(sentence)}"
        yield ">"
    yield f"> {_verdict(known)}"
    yield ""
    yield "## What the policies return and cost"
    yield ""
    yield from _table(known)
    for name, about in PICTURES.items():
        if (run.path / name).exists() and (name != "estimates.png" or known.estimates is not None):
            yield f"![{about}]({_link(run.path / name, out)})"
            yield ""
    yield from _basis(known)
    yield from _calibrated(run)
    yield "## Data"
    yield ""
    yield from _data(run, known)
    yield "## Method"
    yield ""
    yield from _method(run)
    yield "## How to load them"
    yield ""
    yield from _loading(run, known)


def _verdict(known: Known) -> str:
    """Never that a policy is safe: how many costs are shown, by what, or that none is."""
    count, said, kept = len(known.policy), [], 0
    estimates, places = known.estimates, [known.estimated(i) for i in range(len(known.policy))]
    if estimates is not None and any_of(places):
        kept = sum(_within(estimates, place) for place in places if place is not None)
        said.append(
            f"{_of(kept, count, 'is shown to cost', 'are shown to cost', 'is not shown to cost')}, by estimates from "
            f"the log alone, with {estimates.confidence:.0%} confidence and under the assumptions below."
        )
    scored = [one for i in range(count) if (one := known.scored(i)) is not None]
    if scored:
        played = sum(one["cost"] <= one["limit"] for one in scored)
        kept += played
        said.append(
            f"{_of(played, count, 'costs', 'cost', 'does not cost')} in the mean of {scored[0]['episodes']} episodes "
            f"played in {scored[0]['environment']}."
        )
    if not said:
        return "**Not shown to be safe:** the policies were neither estimated nor played."
    return _text(" ".join(said if kept else ["**Not shown to be safe.**", *said]))


def _of(kept: int, count: int, one: str, many: str, none: str) -> str:
    """``2 of 3 policies cost at most their limit``"""
    if count == 1:
        return f"The policy {one if kept else none} at most its limit"
    return f"{kept} of {count} policies {one if kept == 1 else many} at most {'its' if kept == 1 else 'their'} limit"


def _within(estimates: Estimates, place: int) -> bool:
    return bool(estimates.shown(estimates.limits, estimates.confidence)[place])


def _table(known: Known) -> Iterator[str]:
    estimates, metadata = known.estimates, known.policy.metadata
    places = [known.estimated(i) for i in range(len(known.policy))]
    scored = [known.scored(i) for i in range(len(known.policy))]
    heads = ["limit", "seed"]
    heads += ["estimated return", "estimated cost", "shown within limit", "out of data"] if any_of(places) else []
    strayed = [known.strayed(i) for i in range(len(known.policy))]
    heads += ["played return", "played cost"] if any_of(scored) else []
    heads += ["out of data, played"] if any_of(strayed) else []
    yield f"| {' | '.join(heads)} |"
    yield f"|{'---:|' * len(heads)}"
    for i, (limit, seed) in enumerate(zip(metadata.limits, metadata.seeds, strict=True)):
        row, place, one = [f"{limit:g}", str(seed)], places[i], scored[i]
        if estimates is not None and place is not None:
            (low, high), (least, most) = estimates.return_intervals[place], estimates.cost_intervals[place]
            row += [
                f"{estimates.returns[place]:.1f} ({low:.1f} to {high:.1f})",
                f"{estimates.costs[place]:.1f} ({least:.1f} to {most:.1f})",
                "yes" if _within(estimates, place) else "**no**",
                f"{estimates.ood_shares[place]:.0%}",
            ]
        elif any_of(places):
            row += ["not estimated", "not estimated", "**no**", ""]
        if one is not None:
            row += [f"{one['return']:.1f}", f"{one['cost']:.1f}" + ("" if one["cost"] <= limit else " **above**")]
        if any_of(strayed):
            row.append("" if (share := strayed[i]) is None else f"{share:.0%}")
        yield f"| {' | '.join(row)} |"
    yield ""


def _basis(known: Known) -> Iterator[str]:
    """What the numbers rest on."""
    estimates = known.estimates
    if estimates is not None and any_of(map(known.estimated, range(len(known.policy)))):
        yield (
            f"**Estimated** from {estimates.data['episodes']:,} logged episodes of at most {estimates.data['horizon']} "
            f"steps (fingerprint `{estimates.data['fingerprint']}`), nothing was played; in brackets "
            f"{estimates.confidence:.0%} intervals; shown within limit: the upper bound of the cost at "
            f"{estimates.confidence:.0%} confidence is at most the limit."
        )
        yield ""
        for note in estimates.notes:
            yield f"- {_text(note)}"
        yield f"- {ASSUMPTIONS}"
        yield ""
    scores = known.scores
    if scores is not None and scores.protocol is not None:
        yield (
            f"**Played** in {_text(scores.protocol.env)}: the mean of {scores.protocol.episodes} episodes of seed "
            f"{scores.protocol.seed} for each policy. It holds for this environment."
        )
        yield ""


def _calibrated(run: RunMetadata) -> Iterator[str]:
    """Other policies of the same training, where a limit was to be used up."""
    directory = RunDirectory(run.path)
    if not directory.calibration.exists():
        return
    found = Calibration.load(directory)
    yield "## Calibrated policies"
    yield ""
    yield (
        f"In `{directory.calibrated.name}`, for each limit the same network at another one, so that the limit is used: "
        "what is said above is not about them. Return and cost are estimated."
    )
    yield ""
    yield f"| {' | '.join(('limit', 'seed', *HEADS))} |"
    yield f"|{'---:|' * (2 + len(HEADS))}"
    for choice in found.choices:
        yield f"| {' | '.join((f'{choice.limit:g}', str(choice.seed), *choice.in_words()))} |"
    yield ""
    for sentence in found.basis:
        yield f"- {_text(sentence)}"
    yield ""


def _data(run: RunMetadata, known: Known) -> Iterator[str]:
    holdout = Holdout.of(known.config or {})
    about = {
        "file": run.data_source.get("file", "without a name"),
        "made by": run.data_source.get("made_by"),
        "task": run.task,
        "trained on": f"{run.data['episodes']:,} episodes, {run.data.get('rows', 0):,} steps",
        "fingerprint": f"`{run.data['fingerprint']}`",
        "held out": None if holdout is None else f"{holdout.episodes} other episodes of the same file",
        "cost limits": ", ".join(f"{limit:g}" for limit in run.limits),
    }
    yield from _list(about)


def _method(run: RunMetadata) -> Iterator[str]:
    suite = all_tasks()[run.task].suite if run.task in all_tasks() else "Bullet"
    preset, changes = nearest_preset(run.method, suite, run.settings)
    changed = ", ".join(f"{name} {value}" for name, value in changes.items())
    about = {
        "method": f"{run.title} (`{run.method}`)",
        "settings": f"the {preset} preset" + (f", but {changed}" if changed else "") if preset else changed,
        "seeds": ", ".join(map(str, run.seeds)),
        "identity": f"`{run.identity}`",
        "trained on": f"{run.device}, {run.precision}",
        "versions": ", ".join(f"{name} {version}" for name, version in run.versions.items()),
    }
    yield from _list(about)


def _loading(run: RunMetadata, known: Known) -> Iterator[str]:
    metadata = known.policy.metadata
    yield (
        f"An observation has size {known.policy.observation_size}, in the units of the log; an action has size "
        f"{len(metadata.action_low)}, from {_numbers(metadata.action_low)} to {_numbers(metadata.action_high)}."
    )
    yield ""
    yield "```python"
    yield "import tracrl"
    yield ""
    yield f'policy = tracrl.load_policy("{run.path.name}")[0]  # limit {metadata.limits[0]:g}, seed {metadata.seeds[0]}'
    yield "policy.reset(0)  # at the beginning of each episode"
    yield "action = policy.act(observation)"
    yield "```"
    yield ""
    try:
        exporter = exporter_of(known.policy[0])
    except TracrlError as error:
        yield f"As ONNX: {error}"
        return
    told = isinstance(exporter, LimitRangeExporter)
    chosen = [f"--limit {metadata.limits[0]:g}"] if len(set(metadata.limits)) > 1 and not told else []
    chosen += [f"--seed {metadata.seeds[0]}"] if len(set(metadata.seeds)) > 1 else []
    command = " ".join([f"tracrl export {run.path.name} --out policy.onnx", *chosen])
    yield f"Without Python, after `{command}`, in any onnxruntime:"
    yield ""
    yield "```python"
    yield "import onnxruntime"
    yield ""
    yield 'session = onnxruntime.InferenceSession("policy.onnx")'
    more = f', "{exporter.more}": {exporter.more}' if exporter.more else ""
    size = known.policy.observation_size
    yield f'(actions,) = session.run(["action"], {{"observation": observations{more}}})  # float32 (n, {size})'
    yield "```"
    yield ""
    yield "An observation that is not a number gives an action that is not a number."
    if exporter.more:
        yield f"Beside observations it takes {exporter.how_to_call()}."


def any_of(values: Any) -> bool:
    return any(value is not None for value in values)


def _list(about: Mapping[str, Any]) -> Iterator[str]:
    for name, value in about.items():
        if value:
            yield f"- {name}: {_text(str(value))}"
    yield ""


def _text(words: object) -> str:
    """One line that no file name can break."""
    return " ".join(str(words).split()).replace("|", "\\|").replace("<", "&lt;")


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _link(picture: Path, card: Path) -> str:
    """Beside the card the name alone, else the whole path."""
    return picture.name if picture.parent.resolve() == card.parent.resolve() else str(picture.resolve())
