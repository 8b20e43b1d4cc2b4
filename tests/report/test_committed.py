"""Results that were written down: the folder results/ of the repository, and what is wrong with such a folder."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from tests.study.made_up import write_run
from tracrl.errors import TracrlError
from tracrl.report.benchmark import ablations_grid, benchmark_grid, benchmark_tables, suites_grid
from tracrl.report.build import make_report
from tracrl.report.cells import Cell
from tracrl.report.committed import COLUMNS, read_committed
from tracrl.report.groups import find_ablations, overview
from tracrl.tasks.table import all_tasks, get_task

RESULTS = Path(__file__).parent.parent.parent / "results"


def write_results(folder: Path, **scores: list[tuple[str, float, float]]) -> Path:
    """``trac=[("BallRun", 0.5, 0.2)]``: task, normalised reward and cost, at two limits, of two episodes each."""
    folder.mkdir(exist_ok=True)
    rows: dict[str, list[tuple[object, ...]]] = {"runs": [], "scores": [], "data": []}
    for name, told in scores.items():
        method, _, preset = name.replace("_", "-").partition("--")
        for task, reward, cost in told:
            facts = get_task(task)
            total = facts.min_return + reward * (facts.max_return - facts.min_return)
            for limit in (10, 20):
                run = len(rows["runs"])
                what = (run, task, "collected", method, preset or "fast", "", "off", limit, 0, task * 2)
                rows["runs"].append((*what, "0.5", "cpu", "float32", "two cores", 2, 0))
                rows["scores"] += [(run, episode, total, cost * limit, 100) for episode in range(2)]
    for task in dict.fromkeys(str(row[1]) for row in rows["runs"]):
        rows["data"].append((task, "collected", task * 2, "tracrl collect", 40, 800, 0, 1, 9, "10 20", 9, 9, 0.5))
    for name, columns in COLUMNS.items():
        lines = [",".join(map(str, row)) for row in (columns, *rows[name])]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_the_report_of_the_repositorys_results_names_all_tasks(tmp_path: Path) -> None:
    console = Console(file=io.StringIO(), width=120)
    page = make_report([RESULTS], tmp_path, console, figures=False)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    table = (tmp_path / "tables" / "benchmark.txt").read_text()
    for task in all_tasks():
        assert any(line.startswith(f"{task} ") for line in table.splitlines()), task
        assert task in output
        assert task in page.read_text()
    assert "are not DSRL's: no number of ours is a result on DSRL" in " ".join(output.split())
    assert not (tmp_path / "tables" / "main-best.txt").exists(), "nothing was chosen on the way"


def test_a_cell_is_that_of_the_episodes(tmp_path: Path) -> None:
    committed = read_committed(write_results(tmp_path, trac=[("BallRun", 0.5, 0.25)], bc_all=[("BallRun", 0.7, 2.0)]))
    cell = Cell.of([r for r in committed.results if r.stack.method == "trac"], "final")
    assert cell is not None
    assert (cell.reward, cell.cost, cell.runs, cell.parts) == (pytest.approx(0.5), pytest.approx(0.25), 2, 2)
    found = overview(committed.results).with_all_tasks()
    grid = benchmark_grid(found)
    told = {line.label: [entry.whole for entry in line.entries] for line in grid.lines}
    assert told["BallRun"] == ["0.70 / 2.00 (0/2)", "0.50 / 0.25 (2/2)", "0.27 / 0.49"]
    assert told["CarRun (not run)"] == ["–", "–", "0.97 / 0.00"]
    assert len(told) == 38 + 1, "and one average"
    assert found.rows[3].source == "collected, 40 episodes, not DSRL's (tracrl collect)"


def test_an_average_is_over_tasks_that_all_methods_beside_it_have(tmp_path: Path) -> None:
    names = ("BallRun", "CarRun", "DroneRun", "AntRun")
    all_four = [(name, 0.1 * i, 0.5) for i, name in enumerate(names)]
    folder = write_results(tmp_path, bc_all=all_four, trac=all_four[:3], trac__full=all_four[:2])
    grid = suites_grid(overview(read_committed(folder).results).with_all_tasks())
    bullet = {line.label: line.entries for line in grid.lines if line.label.startswith("Bullet")}
    assert list(bullet) == [
        "Bullet, 4 tasks: BC-All",
        "Bullet, 3 tasks: BC-All",
        "Bullet, 3 tasks: TraC (fast)",
        "Bullet, 2 tasks: BC-All",
        "Bullet, 2 tasks: TraC (fast)",
        "Bullet, 2 tasks: TraC (full)",
    ]
    assert [entries[0].text for entries in bullet.values()] == ["0.15", "0.10", "0.10", "0.05", "0.05", "0.05"]
    assert [entry.text for entry in bullet["Bullet, 2 tasks: TraC (full)"]][2:] == [
        "2 of 2", "2 of 2", "4 of 4", "0.62 / 0.24", "2 of 2"
    ]  # fmt: skip


def test_a_method_of_few_tasks_has_a_table_of_its_own(tmp_path: Path) -> None:
    names = ("BallRun", "CarRun", "DroneRun", "AntRun", "BallCircle")
    five = [(name, 0.1 * i, 0.5) for i, name in enumerate(names)]
    committed = read_committed(write_results(tmp_path, bc_all=five, trac=five, cdt=five[1:2]))
    found = overview(committed.results)
    grids = benchmark_tables(found.with_all_tasks(), committed, [])
    assert grids["benchmark"].heads == ("BC-All", "TraC", "TraC as published")
    assert [line.label for line in grids["methods"].lines] == ["CarRun"], "and no average of one task"
    assert grids["methods"].heads == ("BC-All", "CDT", "TraC", "TraC as published")
    assert "methods" not in benchmark_tables(found.of_columns(found.columns[:1]), committed, [])


def test_the_data_set_that_came_last_counts_and_another_choice_of_episodes_never_does(tmp_path: Path) -> None:
    folder = write_results(tmp_path, trac=[("BallRun", 0.5, 0.2), ("CarRun", 0.5, 0.2)], bc_all=[("BallRun", 0.9, 3.0)])
    runs = (folder / "runs.csv").read_text().splitlines()
    changed = [line.replace("BallRunBallRun", "later") if ",bc-all," in line else line for line in runs]
    (folder / "runs.csv").write_text("\n".join(changed) + "\n")
    data = (folder / "data.csv").read_text()
    (folder / "data.csv").write_text(data + data.splitlines()[1].replace("BallRunBallRun", "later") + "\n")
    committed = read_committed(folder)
    assert {(r.stack.task, r.stack.method) for r in committed.results} == {("BallRun", "bc-all"), ("CarRun", "trac")}
    (folder / "runs.csv").write_text("\n".join(changed).replace("collected,bc-all", "even,bc-all") + "\n")
    committed = read_committed(folder)
    assert {(r.stack.task, r.stack.method) for r in committed.results} == {("BallRun", "trac"), ("CarRun", "trac")}
    assert {r.stack.method for r in committed.others} == {"bc-all"}


def test_standardised_observations_are_a_column_only_where_they_are_compared(tmp_path: Path) -> None:
    told = [("BallRun", 0.5, 0.2), ("CarRun", 0.5, 0.2)]
    folder = write_results(tmp_path / "results", trac=told, bc_all=told)
    runs = (folder / "runs.csv").read_text()
    (folder / "runs.csv").write_text(runs.replace("CarRun,collected,trac,fast,,off", "CarRun,collected,trac,fast,,on"))
    grid = benchmark_grid(overview(read_committed(folder).results))
    assert [head for head in grid.heads if "standardise" in head] == []
    assert "Trained on standardised observations: CarRun (only TraC)." in grid.caption
    again = [
        line.replace("BallRun,collected,bc-all,fast,,off", "BallRun,collected,trac,fast,,on")
        for line in runs.splitlines()
    ]
    (folder / "runs.csv").write_text("\n".join(again) + "\n")
    assert "TraC (standardise on)" in benchmark_grid(overview(read_committed(folder).results)).heads
    told = [("PointGoal1", 0.5, 0.2)]  # where a short training does it by itself
    folder = write_results(tmp_path / "map", trac=told, bc_all=told)
    runs = (folder / "runs.csv").read_text()
    (folder / "runs.csv").write_text(runs.replace("collected,bc-all,fast,,off", "collected,trac,fast,,on"))
    heads = benchmark_grid(overview(read_committed(folder).results)).heads
    assert heads == ("TraC", "TraC (standardise off)", "TraC as published")


def test_runs_with_other_settings_are_ablations_beside_their_preset(tmp_path: Path) -> None:
    told = [("BallRun", 0.5, 0.2), ("CarRun", 0.5, 0.2)]
    folder = write_results(tmp_path / "results", trac=told, bc_all=[("BallRun", 0.7, 2.0), ("CarRun", 0.7, 2.0)])
    runs = (folder / "runs.csv").read_text()
    (folder / "runs.csv").write_text(runs.replace("BallRun,collected,bc-all,fast,", "BallRun,collected,trac,fast,x=25"))
    committed = read_committed(folder)
    (ablation,) = find_ablations(committed.results)
    assert (ablation.study, ablation.values) == ("x", (25.0, 50.0))
    found = overview(committed.results, [ablation])
    assert [column.label for column in found.columns] == ["BC-All", "TraC"], "not among the methods"
    (low, usual) = ablations_grid([ablation]).lines
    assert (low.label, low.entries[0].whole) == ("x % 25", "0.70 / 2.00 (0/2)")
    assert (usual.label, usual.entries[0].whole) == ("x % 50", "0.50 / 0.20 ◦ (2/2)")
    for preset, change, problem in (
        ("slow", "x=25", "run 4: trac slow is no preset whose settings could be varied"),
        ("fast", "z=25", r"runs.csv cannot be used \(run 0: .* has a setting called 'z'.\); restore it"),
    ):
        wrong = runs.replace("BallRun,collected,bc-all,fast,", f"BallRun,collected,trac,{preset},{change}")
        (folder / "runs.csv").write_text(wrong)
        with pytest.raises(TracrlError, match=problem):
            read_committed(folder)


@pytest.mark.parametrize(
    ("file", "old", "new", "sentence"),
    [
        ("runs", "precision", "colour", r"runs.csv cannot be used \(without the column precision\); restore it"),
        ("runs", "0,BallRun", "0,BallRum", "run 0: no known task is called 'BallRum'"),
        ("runs", ",10,0,", ",-10,0,", "run 0: its limit is -10"),
        ("runs", "1,BallRun,collected,trac,fast,,off,20", "1,BallRun,collected,trac,fast,,off,10", "is there twice"),
        ("runs", "1,BallRun", "7,BallRun", "run 7: 2 episodes were played, scores.csv has 0"),
        ("runs", "two cores,2", "two cores,3", "run 0: 3 episodes were played, scores.csv has 2"),
        ("scores", "0,1,", "0,0,", "run 0, episode 0 is there twice, or is no score"),
        ("scores", "2.0,100", "nan,100", "run 0, episode 0 is there twice, or is no score"),
        ("scores", "2.0,100", "x,100", "could not convert string to float: 'x'"),
        ("scores", "2.0,100", "2.0", "line 2 is not 5 values long"),
        ("scores", "1,1,", "9,0,", r"run 1: 2 episodes were played, scores.csv has 1"),
        ("data", "BallRunBallRun", "other", "data.csv says nothing on its data, BallRunBallRun"),
    ],
)
def test_what_does_not_fit_together_is_one_sentence(
    tmp_path: Path, file: str, old: str, new: str, sentence: str
) -> None:
    folder = write_results(tmp_path / "results", trac=[("BallRun", 0.5, 0.2)])
    path = folder / f"{file}.csv"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    with pytest.raises(TracrlError, match=sentence):
        make_report([folder], tmp_path / "out", Console(file=io.StringIO()))
    assert not (tmp_path / "out").exists()


def test_a_missing_file_no_runs_and_other_folders_beside_it(tmp_path: Path) -> None:
    folder = write_results(tmp_path / "results", trac=[("BallRun", 0.5, 0.2)])
    runs = write_run(tmp_path / "runs")
    with pytest.raises(TracrlError, match="holds results that were written down: report it by itself"):
        make_report([runs, folder], tmp_path / "out", Console(file=io.StringIO()))
    (folder / "data.csv").unlink()
    with pytest.raises(TracrlError, match=r"data.csv is missing: .* needs runs.csv, scores.csv and data.csv"):
        read_committed(folder)
    shutil.rmtree(folder)
    with pytest.raises(TracrlError, match=r"runs.csv holds no run"):
        read_committed(write_results(folder))
