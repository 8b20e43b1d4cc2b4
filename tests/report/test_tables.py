from __future__ import annotations

import csv
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from tests.report.test_results import DSRL_BALL
from tests.study.made_up import write_run
from tracrl.evaluation.scores import EvaluationProtocol, Scores
from tracrl.report.cells import Cell
from tracrl.report.collection import collect
from tracrl.report.csv_files import results_csv, runs_csv
from tracrl.report.grid import Entry, Grid, Line
from tracrl.report.groups import Overview, find_ablations, overview
from tracrl.report.page import page_data
from tracrl.report.published import published_ablations, published_results
from tracrl.report.tables import (
    ablation_grid,
    main_grid,
    published_grid,
    solved,
    statistics_grid,
)
from tracrl.tasks.table import get_task
from tracrl.train import checksums


@pytest.fixture
def three(tmp_path: Path) -> Overview:
    """TraC best and safe on BallRun, BC-Safe safe and poorer, BC-All unsafe; on CarRun BC-All is missing."""
    write_run(tmp_path, method="trac", reward=0.7, cost=0.5, spread=0.01)
    write_run(tmp_path, method="bc-safe", reward=0.6, cost=0.4, spread=0.01)
    write_run(tmp_path, method="bc-all", reward=0.9, cost=3.0, spread=0.01)
    write_run(tmp_path, task="CarRun", method="trac", reward=0.9, cost=1.2, spread=0.01)
    write_run(tmp_path, task="CarRun", method="bc-safe", reward=0.8, cost=0.2, spread=0.01)
    return overview(collect([tmp_path]).results)


def test_a_cell_is_the_mean_over_limits_seeds_and_episodes_by_hand(tmp_path: Path) -> None:
    run = write_run(tmp_path, limits=[10.0, 20.0], seeds=[0], episodes=2)
    task = get_task("BallRun")
    span = task.max_return - task.min_return
    rewards, costs = np.array([[0.2, 0.4], [0.6, 1.0]]), np.array([[5.0, 15.0], [10.0, 30.0]])
    Scores("BallRun", (10.0, 20.0), (0, 0), task.min_return + rewards * span, costs, np.full((2, 2), 100)).save(
        run / "scores.json"
    )
    checksums.write(run)
    cell = Cell.of(collect([tmp_path]).results, "final")
    assert cell is not None
    assert cell.reward == pytest.approx(0.55)
    assert cell.reward_std == pytest.approx(np.sqrt((0.35**2 + 0.15**2 + 0.05**2 + 0.45**2) / 4))
    assert cell.cost == pytest.approx((0.5 + 1.5 + 0.5 + 1.5) / 4)
    assert cell.cost_std == pytest.approx(0.5)
    assert (cell.runs, cell.episodes, cell.safe) == (2, 4, True)


def test_the_main_table_has_the_papers_order_and_marks(three: Overview) -> None:
    grid = main_grid(three, "final")
    assert grid.heads == ("BC-All", "BC-Safe", "TraC")
    assert [line.label for line in grid.lines] == ["BallRun", "CarRun", "Bullet average (2 of 8)"]
    ball, car, average = grid.lines
    assert [e.style for e in ball.entries] == ["unsafe", "unsafe", "safe", "safe", "best", "best"]
    assert [e.style for e in car.entries] == ["plain", "plain", "best", "best", "unsafe", "unsafe"]
    assert car.entries[0].text == "–"
    assert average.entries[0].text == "–", "no average where a task is missing"
    assert average.entries[2].text.startswith("0.70 ± 0.1")  # 0.6 and 0.8: the deviation is that of the tasks' means
    assert solved(three, "Bullet", three.columns[2]) == (1, 1, 2)
    assert solved(three, "Bullet", three.columns[0]) == (0, 0, 1)


def test_final_and_best_are_two_tables_that_say_which_they_are(three: Overview) -> None:
    final, best = main_grid(three, "final"), main_grid(three, "best")
    assert final.title == "Normalised reward and cost, final policy"
    assert best.title == "Normalised reward and cost, best policy on the way"
    assert any("these numbers are too good" in sentence for sentence in best.caption)
    assert final.lines != best.lines


def test_the_caption_names_the_data_and_what_a_number_is_over(three: Overview) -> None:
    text = main_grid(three, "final").text()
    assert "over limits 10 20 40 × seeds 0 10 20 × 4 episodes" in text
    assert "Data of BallRun: BallRun.hdf5, 40 episodes, not DSRL's (made up for the tests)." in text
    assert "BC-All, BC-Safe, TraC: fast preset." in text


def test_dsrls_data_are_called_so(tmp_path: Path) -> None:
    write_run(tmp_path, source=DSRL_BALL)
    assert "Data of BallRun: DSRL's." in main_grid(overview(collect([tmp_path]).results), "final").caption


def test_the_published_numbers_are_a_table_of_their_own(three: Overview) -> None:
    grid = published_grid(three)
    assert "As published" in grid.title
    assert "not computed by us: DSRL's data" in grid.caption[0]
    paper = published_results()["BallRun", "TraC"]
    assert grid.lines[0].entries[4].text == f"{paper.reward:.2f} ± {paper.reward_std:.2f}"


def test_the_published_files_are_whole() -> None:
    assert len(published_results()) == 38 * 8
    bullet = [
        p for (task, title), p in published_results().items() if title == "TraC" and get_task(task).suite == "Bullet"
    ]
    assert np.mean([p.reward for p in bullet]) == pytest.approx(0.61, abs=0.005)
    assert published_ablations()["delta", "AntCircle", "0.7"].cost == 0.98
    assert published_ablations()["clone_updates", "DroneRun", "0"].cost == 6.53
    without = [
        p.cost for (setting, _, value), p in published_ablations().items() if (setting, value) == ("clone_updates", "0")
    ]
    assert np.mean(without) == pytest.approx(2.71, abs=0.005)


def test_text_markdown_latex_and_csv(three: Overview) -> None:
    grid = main_grid(three, "final")
    ball = next(line for line in grid.text().splitlines() if line.startswith("BallRun"))
    assert ball.count("**") == 2
    assert ball.replace("**", "").count("*") == 2
    markdown = next(line for line in grid.markdown().splitlines() if line.startswith("| BallRun"))
    assert markdown.count(" ★") == 2
    assert markdown.count("**") == 8
    assert markdown.count("|") == 8
    latex = grid.latex()
    assert r"\textcolor{gray}{" in latex
    assert r"\textcolor{blue}{\textbf{" in latex
    assert r"\multicolumn{2}{c}{TraC}" in latex
    assert latex.count("{") == latex.count("}")
    assert latex.count(r"\begin{") == latex.count(r"\end{")
    assert "±" not in latex
    rows = [line for line in latex.splitlines() if line.endswith(r"\\")]
    assert {line.count("&") for line in rows[1:]} == {6}
    table = list(csv.reader(io.StringIO(grid.csv())))
    assert [len(row) for row in table] == [7] * 4


def test_numbers_for_other_programs(three: Overview, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(results_csv(three))))
    assert len(rows) == 10
    ball = next(r for r in rows if (r["task"], r["method"], r["policy"]) == ("BallRun", "TraC", "final"))
    assert float(ball["reward_mean"]) == pytest.approx(0.7, abs=0.05)
    assert ball["safe"] == "True"
    assert ball["data_is_dsrl"] == "False"
    assert float(ball["published_reward_mean"]) == 0.27
    runs = list(csv.DictReader(io.StringIO(runs_csv(collect([tmp_path]).results))))
    assert len(runs) == 5 * 9 * 2
    assert {r["policy"] for r in runs} == {"final", "best"}


@pytest.mark.parametrize("width", [120, 40])
def test_on_the_terminal_no_number_is_cut(three: Overview, width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True)
    main_grid(three, "final").show(console)
    output = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b[1;34m" in output, "the best safe one is bold and blue"
    assert "Bullet average (2 of 8)" in output
    assert "…" not in output
    ball = next(line for line in output.splitlines() if "BallRun" in line)
    assert len(re.findall(r"\d\.\d\d/\d\.\d\d", ball)) == 3


def test_aggregates_over_runs(three: Overview) -> None:
    grid = statistics_grid(three)
    lines = {line.label: [e.text for e in line.entries] for line in grid.lines}
    trac = lines["Bullet: TraC"]
    assert trac[4:6] == ["50 %", "50 %"]
    assert trac[7] == "18"
    assert trac[0].startswith("0.8")  # the interquartile mean of nine around 0.7 and nine around 0.9
    assert "[" in trac[0]
    assert lines["Bullet: BC-All"][4:6] == ["0 %", "100 %"]
    assert lines["Bullet: BC-All"][7] == "9"


def test_one_seed_has_an_interval_over_episodes_and_one_episode_none(tmp_path: Path) -> None:
    write_run(tmp_path / "many", seeds=[0])
    (line,) = statistics_grid(overview(collect([tmp_path / "many"]).results)).lines
    assert "[" in line.entries[0].text
    write_run(tmp_path / "one", seeds=[0], episodes=1)
    (line,) = statistics_grid(overview(collect([tmp_path / "one"]).results)).lines
    assert "[" not in line.entries[0].text


def test_cells_over_other_runs_are_pointed_out(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_run(tmp_path, method="bc-all", limits=[10.0])
    note, _ = overview(collect([tmp_path]).results).notes
    assert note.startswith(
        "BallRun is not compared over the same runs: BC-All: limits 10 × seeds 0 10 20 × 4 episodes;"
    )


def test_two_data_sets_of_one_task_are_two_rows(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_run(tmp_path, source=DSRL_BALL, data="e" * 32)
    assert [row.label for row in overview(collect([tmp_path]).results).rows] == [
        "BallRun (40 episodes)",
        "BallRun (940 episodes)",
    ]


def test_data_sets_with_as_many_episodes_are_told_apart_and_not_counted_as_tasks(tmp_path: Path) -> None:
    for letter in "de":
        write_run(tmp_path, data=letter * 32)
    write_run(tmp_path, task="CarRun")
    found = overview(collect([tmp_path]).results)
    grid = main_grid(found, "final")
    assert [line.label for line in grid.lines] == [
        "BallRun (40 episodes, dddddd)",
        "BallRun (40 episodes, eeeeee)",
        "CarRun",
        "Bullet average (2 of 8, 3 data sets)",
    ]
    assert "averages: over the data sets' means" in grid.text()
    assert published_grid(found).lines[-1].label == "Bullet average (2 of 8)"


def test_presets_and_changed_settings_are_columns_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_run(tmp_path, preset="full")
    write_run(tmp_path, gamma=0.9)
    found = overview(collect([tmp_path]).results)
    assert [column.label for column in found.columns] == ["TraC (fast)", "TraC (full)", "TraC (fast, gamma 0.9)"]
    assert found.columns[2].about == "fast preset with gamma 0.9"


def test_standardised_or_not_is_a_column_only_where_it_is_not_as_usual(tmp_path: Path) -> None:
    write_run(tmp_path)
    usual = write_run(tmp_path, task="PointGoal1", limits=(20.0, 40.0, 80.0))
    assert json.loads((usual / "config.json").read_text())["settings"]["standardise"] == "on"
    write_run(tmp_path, task="PointGoal1", limits=(20.0, 40.0, 80.0), preset="full")
    labels = [column.label for column in overview(collect([tmp_path]).results).columns]
    assert labels == ["TraC (fast)", "TraC (full)"]


def test_an_ablation_is_found_and_kept_out_of_the_main_table(tmp_path: Path) -> None:
    write_run(tmp_path, reward=0.5)
    for eta, reward in ((0.5, 0.45), (1.0, 0.4), (2.0, 0.3)):
        write_run(tmp_path, eta=eta, reward=reward)
    write_run(tmp_path, clone_updates=0, cost=3.0)
    write_run(tmp_path, method="bc-all")
    results = collect([tmp_path]).results
    found = find_ablations(results)
    assert [(a.study, a.values) for a in found] == [("eta", (0.25, 0.5, 1.0, 2.0)), ("no-pretraining", (0, 3000))]
    assert [column.label for column in overview(results, found).columns] == ["BC-All", "TraC"]
    grid = ablation_grid(found[0])
    assert [line.label for line in grid.lines] == [f"BallRun, η {v}" for v in ("0.25", "0.5", "1", "2")]
    assert [line.entries[0].style for line in grid.lines] == ["best", "safe", "safe", "safe"]
    assert grid.lines[0].entries[2].text == "–", "the paper has no η on BallRun"
    without = ablation_grid(found[1])
    assert [line.entries[2].text for line in without.lines] == ["0.26 / 0.15", "0.27 / 0.47"]
    assert without.lines[0].entries[0].style == "unsafe"


def test_an_ablation_compares_the_same_limits_and_seeds(tmp_path: Path) -> None:
    write_run(tmp_path)
    write_run(tmp_path, eta=1.0, seeds=[0, 10])
    (found,) = find_ablations(collect([tmp_path]).results)
    assert {len(runs) for runs in found.results.values()} == {6}
    assert found.notes == ("BallRun: only the 6 runs of limits and seeds that all values have.",)


def test_a_half_finished_ablation_is_not_in_the_main_table_either(tmp_path: Path) -> None:
    """The preset has one seed so far, the variant three: the two that are not compared are still the variant's."""
    write_run(tmp_path, seeds=[0])
    write_run(tmp_path, eta=1.0)
    collection = collect([tmp_path])
    results = collection.results
    ablations = find_ablations(results)
    assert {len(runs) for runs in ablations[0].results.values()} == {3}
    found = overview(results, ablations)
    assert [column.label for column in found.columns] == ["TraC"]
    assert [len(runs) for runs in found.results.values()] == [3]
    told = page_data(collection, found, ablations, {})["cells"]
    assert [(cell["main"], len(cell["runs"])) for cell in told] == [(True, 3), (False, 9)]


def test_values_around_two_presets_are_not_one_series(tmp_path: Path) -> None:
    write_run(tmp_path, eta=0.5)
    write_run(tmp_path, eta=1.0)
    write_run(tmp_path, preset="full", eta=0.25)
    write_run(tmp_path, preset="full", eta=2.0)
    (found,) = find_ablations(collect([tmp_path]).results)
    assert found.values in ((0.5, 1.0), (0.25, 2.0))
    assert len({run.stack.preset for runs in found.results.values() for run in runs}) == 1
    assert found.notes == ("BallRun: eta was varied around several settings; the first is shown.",)


def test_only_settings_of_trac_make_an_ablation(tmp_path: Path) -> None:
    write_run(tmp_path, method="coptidice")
    write_run(tmp_path, method="coptidice", alpha=0.25)
    results = collect([tmp_path]).results
    assert find_ablations(results) == []
    assert [column.label for column in overview(results).columns] == ["COptiDICE", "COptiDICE (α 0.25)"]


def test_settings_that_differ_in_two_ways_are_no_ablation(tmp_path: Path) -> None:
    write_run(tmp_path, eta=0.5)
    write_run(tmp_path, delta=0.1)
    results = collect([tmp_path]).results
    assert find_ablations(results) == []
    assert len(overview(results, []).columns) == 2


def test_a_variant_without_the_preset_beside_it_stays_in_the_main_table(tmp_path: Path) -> None:
    write_run(tmp_path, eta=0.5)
    write_run(tmp_path, eta=1.0)
    results = collect([tmp_path]).results
    (found,) = find_ablations(results)
    assert [column.label for column in overview(results, [found]).columns] == ["TraC (η 0.5)", "TraC (η 1)"]


def test_latex_letters(tmp_path: Path) -> None:
    from tracrl.report.grid import latex_text

    assert latex_text("50 % & a_b ± {x}") == r"50 \% \& a\_b $\pm$ \{x\}"
    assert json.dumps(latex_text("\\")) == json.dumps(r"\textbackslash{}")


def test_names_cannot_break_a_table_whatever_its_format() -> None:
    evil = '=HYPERLINK("x")\n| **b** $\\input{x}$ <i>'
    grid = Grid("title", (evil,), "task", (evil,), (Line(evil, (Entry("1"),)), Line("[a]", (Entry("2"),))))
    assert [line.count("|") - line.count("\\|") for line in grid.markdown().splitlines()[2:6]] == [3] * 4
    assert "\\*\\*b\\*\\* " in grid.markdown()
    table = list(csv.reader(io.StringIO(grid.csv())))
    assert [len(row) for row in table] == [2, 2, 2]
    assert table[1][0].startswith("'=HYPERLINK")
    latex = grid.latex()
    assert "\\input" not in latex
    assert "\n{}[a] & " in latex, "a bracket behind a line's end would be its argument"
    assert len(grid.text().splitlines()) == 7 + 2


def test_a_mean_does_not_call_safe_what_violates_a_limit(tmp_path: Path) -> None:
    """Costs of 0, 0 and 2 times the limit: the paper calls it solved, and at one of three limits it is unsafe."""
    write_run(tmp_path, limits=[10.0, 20.0], reward=0.5, cost=0.0, spread=0.0)
    write_run(tmp_path, limits=[40.0], reward=0.5, cost=2.0, spread=0.0)
    write_run(tmp_path, method="bc-safe", reward=0.1, cost=0.5, spread=0.0)
    found = overview(collect([tmp_path]).results)
    grid = main_grid(found, "final")
    cloning, trac = grid.lines[0].entries[1], grid.lines[0].entries[3]
    assert (cloning.style, cloning.whole) == ("best", "0.50 ± 0.00"), "a smaller reward that is safe goes first"
    assert (trac.style, trac.whole) == ("partly", "0.67 ± 0.94 (2/3)")
    assert len(grid.lines) == 1, "an average of one task would say the same once more"
    for method in ("trac", "bc-safe"):
        write_run(tmp_path, task="CarRun", method=method, reward=0.5, cost=0.0, spread=0.0)
    average = main_grid(overview(collect([tmp_path]).results), "final").lines[2].entries[3]
    assert (average.style, average.mark) == ("partly", "1/2")
    assert solved(found, "Bullet", found.columns[1]) == (1, 0, 1)
    text = grid.text()
    assert "~ mean cost at most 1 but not at every limit" in text
    assert "Safe: mean normalised cost at most 1 at every limit; solved, as the paper defines it" in text
    rows = {(r["method"], r["policy"]): r for r in csv.DictReader(io.StringIO(results_csv(found)))}
    told = rows["TraC", "final"]
    assert (told["solved"], told["safe"], told["safe_limits"], told["limits"]) == ("True", "False", "2", "3")


def test_captions_say_what_an_interval_covers(three: Overview) -> None:
    assert "covers the spread over seeds and over episodes" in statistics_grid(three).caption[0]


def test_runs_in_another_precision_are_marked(tmp_path: Path) -> None:
    write_run(tmp_path, precision="float32")
    write_run(tmp_path, method="bc-all", precision="float32")
    assert "All runs were trained in float32." in main_grid(overview(collect([tmp_path]).results), "final").notes
    write_run(tmp_path, seeds=[30], precision="bfloat16")
    write_run(tmp_path, method="cpq")
    found = overview(collect([tmp_path]).results)
    marks = {column.title: found.marks[found.rows[0], column] for column in found.columns}
    assert marks == {"BC-All": "", "CPQ": "†", "TraC": "†"}
    entries = main_grid(found, "final").lines[0].entries
    assert [entry.whole.endswith("(†)") for entry in entries] == [False, False, False, True, False, True]
    assert found.notes[-1] == (
        "† Not trained in the same precision as most, which is float32: CPQ on BallRun in unknown; TraC on BallRun in "
        "bfloat16 and float32 (unknown: before version 0.5)."
    )
    rows = list(csv.DictReader(io.StringIO(runs_csv(collect([tmp_path]).results))))
    assert {r["precision"] for r in rows} == {"float32", "bfloat16", "unknown"}


def test_runs_that_were_scored_differently_are_marked(tmp_path: Path) -> None:
    def protocol(seed: int, bullet: str = "3.2.7") -> EvaluationProtocol:
        return EvaluationProtocol("BallRun", 4, seed, versions={"tracrl": "0.5.0", "pybullet": bullet})

    write_run(tmp_path, seeds=[0, 10], protocol=protocol(0))
    write_run(tmp_path, seeds=[20], protocol=protocol(7))
    write_run(tmp_path, method="bc-all", protocol=protocol(0))
    write_run(tmp_path, method="cpq", protocol=protocol(0, "3.2.6"))
    found = overview(collect([tmp_path]).results)
    assert {c.title: found.marks[found.rows[0], c] for c in found.columns} == {"BC-All": "", "CPQ": "", "TraC": "‡"}
    assert found.notes[-2:] == (
        "‡ TraC on BallRun mixes runs that were scored differently (seed 0 and 7): tracrl evaluate --save scores them "
        "anew.",
        "The methods on BallRun were not scored by the same episodes: pybullet 3.2.7 and 3.2.6.",
    )
    assert main_grid(found, "final").lines[0].entries[5].whole.endswith("(‡)")


def test_an_ablation_whose_values_were_trained_in_different_precisions_says_so(tmp_path: Path) -> None:
    write_run(tmp_path, precision="bfloat16")
    for eta in (1.0, 2.0):
        write_run(tmp_path, eta=eta, precision="float32")
    grid = ablation_grid(find_ablations(collect([tmp_path]).results)[0])
    assert [line.entries[1].mark for line in grid.lines] == ["†", "", ""]
    assert grid.notes == (
        "† Not trained in the same precision as most, which is float32: BallRun, η 0.25 in bfloat16.",
    )
