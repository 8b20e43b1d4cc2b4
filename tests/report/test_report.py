from __future__ import annotations

import html
import html.parser
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from rich.console import Console

from tests.study.made_up import ball_episodes, write_run
from tracrl.errors import TracrlError
from tracrl.report.build import make_report
from tracrl.train import checksums
from tracrl.train.directory import identity_of


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks of two suites, three methods, an ablation."""
    out = tmp_path_factory.mktemp("runs")
    for task, limits in (("BallRun", (10.0, 20.0, 40.0)), ("CarGoal1", (20.0, 40.0, 80.0))):
        write_run(out, task=task, limits=limits, reward=0.6, cost=0.5)
        write_run(out, task=task, limits=limits, method="bc-all", reward=0.8, cost=4.0)
        write_run(out, task=task, limits=limits, method="bc-safe", reward=0.4, cost=0.9)
    write_run(out, eta=2.0, reward=0.3)
    write_run(out, sides="undesirable", reward=0.0, cost=2.0)
    return out


@pytest.fixture(scope="module")
def made(runs: Path) -> Path:
    make_report([runs], None, Console(file=io.StringIO(), width=120))
    return runs / "report"


def page_data(page: Path) -> dict[str, object]:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page.read_text(), re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def test_everything_is_written(made: Path) -> None:
    tables = {p.name for p in (made / "tables").iterdir()}
    names = ("main-final", "main-best", "verdicts", "published", "aggregates", "ablation-eta", "ablation-sides")
    numbers = {"results.csv", "results-by-limit.csv", "runs.csv"}
    assert tables == {f"{n}.{s}" for n in names for s in ("txt", "md", "tex", "csv")} | numbers
    figures = {p.name for p in (made / "figures").iterdir()}
    drawn = ("solved", "intervals", "scatter-Bullet", "scatter-SafetyGymnasium", "curves-BallRun", "curves-CarGoal1")
    assert figures == {f"{n}.{s}" for n in (*drawn, "ablation-eta", "ablation-sides") for s in ("png", "svg")}
    for path in (made / "figures").glob("*.png"):
        with Image.open(path) as picture:
            assert picture.width > 500
            assert len(picture.convert("RGB").getcolors(1 << 24) or []) > 20, f"{path} is empty"
    for path in (made / "figures").glob("*.svg"):
        assert path.read_text().rstrip().endswith("</svg>")


def test_the_end_of_cloning_is_marked_in_the_curves(made: Path) -> None:
    assert "end of TraC's cloning" in (made / "figures" / "curves-BallRun.svg").read_text()


def test_the_same_runs_give_the_same_report(runs: Path, made: Path, tmp_path: Path) -> None:
    make_report([runs], tmp_path / "again", Console(file=io.StringIO()), figures=False)
    for path in [made / "report.html", *(made / "tables").iterdir()]:
        assert (tmp_path / "again" / path.relative_to(made)).read_bytes() == path.read_bytes(), path


class References(html.parser.HTMLParser):
    """Everything that a page would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found += [f"{tag} {name}={value}" for name, value in attributes if name in ("src", "href", "srcset")]


def test_the_page_is_one_file_that_needs_no_network(made: Path) -> None:
    text = (made / "report.html").read_text()
    references = References()
    references.feed(text)
    assert references.found == []
    assert "@import" not in text
    assert "url(" not in text
    assert "default-src 'none'" in text
    outside = set(re.findall(r"https?://[^\s\"'<]+", text)) - {"http://www.w3.org/2000/svg"}
    assert outside == set()


def test_the_pages_data_are_the_tables(made: Path) -> None:
    data = page_data(made / "report.html")
    assert len(data["cells"]) == 8  # type: ignore[arg-type]
    main = [cell for cell in data["cells"] if cell["main"]]  # type: ignore[attr-defined, union-attr]
    assert len(main) == 6
    assert sum(len(cell["runs"]) for cell in main) == 54
    text = (made / "tables" / "main-final.txt").read_text()
    for cell in main:
        assert f"{cell['final']['reward']:.2f} ± {cell['final']['reward_std']:.2f}" in text
    assert [a["symbol"] for a in data["ablations"]] == ["sets", "η"]  # type: ignore[attr-defined, union-attr]


def test_the_data_are_drawn_behind_the_policies_that_were_trained_on_them(tmp_path: Path) -> None:
    data = ball_episodes()
    for method, reward, cost in (("trac", 0.6, 0.5), ("bc-all", 0.8, 1.6)):
        write_run(tmp_path / "runs", method=method, reward=reward, cost=cost, spread=0, data=data.fingerprint)
    console = Console(file=io.StringIO(), width=120)
    page = make_report([tmp_path / "runs"], None, console, data=[data])
    output = console.file.getvalue()  # type: ignore[attr-defined]
    picture = page.parent / "figures" / "data-BallRun.png"
    assert str(picture) in "".join(output.split())
    told = picture.with_suffix(".svg").read_text()
    for words in ("40 episodes in the data", "cost limit 10", "cost limit 40", "BC-All", "TraC"):
        assert words in told
    assert re.search(r"BallRun, limit 20: BC-All +0.80 +32.00", output), "few lines: one for each limit"
    with pytest.raises(TracrlError, match=r"No run on a task here was trained on BallRun \(fingerprint"):
        make_report([tmp_path / "runs"], tmp_path / "out", console, data=[ball_episodes(seed=1)])
    assert not (tmp_path / "out").exists()


def test_two_data_sets_of_one_task_have_figures_of_their_own(tmp_path: Path) -> None:
    for letter in "de":
        write_run(tmp_path, data=letter * 32, method="bc-all")
    page = make_report([tmp_path], None, Console(file=io.StringIO()))
    figures = page.parent / "figures"
    assert {p.stem for p in figures.glob("curves-*.svg")} == {f"curves-BallRun--40-episodes--{a * 6}" for a in "de"}
    assert "Data sets solved (mean cost at most 1; dark: at every limit)" in (figures / "solved.svg").read_text()
    assert {row["task"] for row in page_data(page)["rows"]} == {"BallRun"}  # type: ignore[attr-defined, index, union-attr]


def test_nothing_in_a_name_can_break_out_of_the_page(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><b>"
    write_run(tmp_path, source={"file": evil, "made_by": evil, "task": "BallRun"})
    page = make_report([tmp_path], None, Console(file=io.StringIO()), figures=False)
    assert evil not in page.read_text()
    stack_rows = page_data(page)["rows"]
    assert evil in stack_rows[0]["source"]  # type: ignore[index]


def test_the_command_prints_the_table_and_where_the_rest_is(runs: Path, tmp_path: Path) -> None:
    unfinished = write_run(tmp_path, eta=0.5)
    (unfinished / "policy.safetensors").unlink()
    one = next(runs.glob("BallRun-bc-all*"))
    words = ["report", str(one), str(tmp_path), "--out", str(tmp_path / "out")]
    result = subprocess.run(
        [sys.executable, "-m", "tracrl.cli", *words], capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "BC-All" in result.stdout
    assert f"note: {unfinished} is not finished" in result.stdout
    assert f"Page: {tmp_path / 'out' / 'report.html'}" in result.stdout
    assert (tmp_path / "out" / "report.html").exists()
    result = subprocess.run(
        [sys.executable, "-m", "tracrl.cli", *words, "--quiet"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "BC-All" not in result.stdout
    assert result.stdout.startswith("note: ")
    assert f"Page: {tmp_path / 'out' / 'report.html'}" in result.stdout


def test_a_damaged_run_is_listed_and_the_report_is_written(runs: Path, tmp_path: Path) -> None:
    bad = write_run(tmp_path)
    (bad / "scores.json").write_text("{}")
    good = next(runs.glob("BallRun-bc-all*"))
    console = Console(file=io.StringIO(), width=120)
    page = make_report([good, tmp_path], tmp_path / "out", console, figures=False)
    sentence = f"{bad / 'scores.json'} is not what the run wrote"
    assert f"unreadable: {sentence}" in console.file.getvalue()  # type: ignore[attr-defined]
    assert (page.parent / "unreadable.txt").read_text().startswith(sentence)
    assert page_data(page)["unreadable"][0].startswith(sentence)  # type: ignore[index]


def test_where_nothing_can_be_read_nothing_is_written(runs: Path, tmp_path: Path) -> None:
    bad = write_run(tmp_path)
    (bad / "scores.json").write_text("{}")
    with pytest.raises(TracrlError, match=r"No finished run lies below .*scores.json is not what the run wrote"):
        make_report([tmp_path], None, Console(file=io.StringIO()))
    assert not (tmp_path / "report").exists()
    (tmp_path / "file").touch()
    with pytest.raises(TracrlError, match="is a file; --out is the directory"):
        make_report([runs], tmp_path / "file", Console(file=io.StringIO()))


def test_a_disk_that_takes_no_more_is_said_and_nothing_is_half_written(runs: Path, tmp_path: Path) -> None:
    one = next(runs.glob("BallRun-bc-all*"))
    full = "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)); "
    code = full + f"from tracrl.cli import main; sys.exit(main(['report', {str(one)!r}, '--out', {str(tmp_path)!r}]))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]  # a first line may be of matplotlib, on its cache of fonts
    assert re.fullmatch(r"tracrl: \S+ cannot be written \(File too large\); what was there before .*", last)
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.rglob("*.part"))
    assert not (tmp_path / "report.html").exists()


def test_a_folder_whose_name_is_no_text(tmp_path: Path) -> None:
    odd = Path(os.fsdecode(os.fsencode(tmp_path) + b"/runs\xff<b>$"))
    write_run(odd)
    page = make_report([odd], tmp_path / "out", Console(file=io.StringIO()), figures=False)
    assert "runs\\xff<b>$" in (page.parent / "tables" / "runs.csv").read_text()
    assert "runs\udcff<b>$" in page_data(page)["stacks"][0]["path"]  # type: ignore[index]


def test_a_title_with_markup_is_shown_as_it_is(tmp_path: Path) -> None:
    evil = "[red]$x^$ \\input{y} <b>=1|2"
    write_run(tmp_path)
    own = write_run(tmp_path, method="bc-all", name="own")
    config = json.loads((own / "config.json").read_text())
    config |= {"method": "own", "method_metadata": {"title": evil}}
    (own / "config.json").write_text(json.dumps({**config, "identity": identity_of(config)}))
    checksums.write(own)
    console = Console(file=io.StringIO(), width=200)
    page = make_report([tmp_path], None, console)
    assert evil in console.file.getvalue()  # type: ignore[attr-defined]
    tables = page.parent / "tables"
    assert evil in (tables / "main-final.txt").read_text()
    assert "\\input" not in (tables / "main-final.tex").read_text()
    assert html.escape(evil) in page.read_text()
    assert html.escape(evil, quote=False) in (page.parent / "figures" / "solved.svg").read_text()


def test_what_was_played_at_many_limits_is_drawn_over_them(tmp_path: Path) -> None:
    write_run(tmp_path, method="trac-any", limits=(5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 60.0), reward=0.6, cost=0.5)
    write_run(tmp_path, reward=0.5, cost=0.4)
    page = make_report([tmp_path], None, Console(file=io.StringIO(), width=120))
    drawn = (page.parent / "figures" / "limits-BallRun.svg").read_text()
    for words in ("cost limit", "cost of an episode", "TraC-Any"):
        assert words in drawn
    cells = page_data(page)["cells"]
    assert isinstance(cells, list)
    assert sorted(len(cell["limits"]["final"]) for cell in cells) == [3, 7]
