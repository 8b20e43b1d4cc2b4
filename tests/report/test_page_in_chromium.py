"""The page in a real browser, with real clicks and touches. `make test-browser`, or pytest -m browser."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from tests.report.chromium import Chromium
from tests.report.made_up_estimates import write_estimates
from tests.study.made_up import write_run
from tracrl.evaluation.scores import EvaluationProtocol
from tracrl.report.build import make_report

pytestmark = pytest.mark.browser

ROWS = "[...document.querySelectorAll('#table tbody tr')]"
DOTS = "document.querySelectorAll('#scatter .hit').length"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three tasks of two suites, four methods, two ablations, one run that is not finished."""
    out = tmp_path_factory.mktemp("runs")
    scores = {"bc-all": (0.8, 4.0), "bc-safe": (0.4, 0.9), "cpq": (0.1, 9.0), "trac": (0.6, 0.5)}
    tasks = {"BallRun": (10, 20, 40), "CarRun": (10, 20, 40), "HalfCheetahVelocity": (20, 40, 80)}
    for i, (task, limits) in enumerate(tasks.items()):
        for method, (reward, cost) in scores.items():
            apart = reward + 0.1 * i  # dots that do not cover each other
            write_run(out, task=task, limits=limits, method=method, reward=apart, cost=cost, spread=0.02)
    for eta in (0.5, 1.0):
        write_run(out, eta=eta, reward=0.5, cost=0.6)
    write_run(out, clone_updates=0, reward=0.1, cost=2.5)
    write_estimates(next(path for path in sorted(out.iterdir()) if path.name.startswith("CarRun-trac")))
    (write_run(out, eta=2.0) / "policy.safetensors").unlink()
    (write_run(out, eta=1.5) / "scores.json").write_text("<b>no scores</b>")
    return make_report([out], None, Console(file=io.StringIO()), figures=False)


@pytest.fixture(params=["light", "dark"])
def desk(page: Path, request: pytest.FixtureRequest) -> Iterator[Chromium]:
    with Chromium(dark=request.param == "dark") as browser:
        browser.open(page)
        yield browser
        _keep(browser, f"desk-{request.param}")
        assert browser.problems == []


@pytest.fixture(params=["light", "dark"])
def phone(page: Path, request: pytest.FixtureRequest) -> Iterator[Chromium]:
    with Chromium(width=360, height=700, dark=request.param == "dark", touch=True) as browser:
        browser.open(page)
        yield browser
        _keep(browser, f"phone-{request.param}")
        assert browser.problems == []


def _keep(browser: Chromium, name: str) -> None:
    """Screenshots for people, where they ask for them: SCREENSHOTS=directory."""
    if directory := os.environ.get("SCREENSHOTS"):
        Path(directory).mkdir(parents=True, exist_ok=True)
        test = os.environ["PYTEST_CURRENT_TEST"].split("::")[1].split("[")[0]
        browser.screenshot(Path(directory) / f"{test}-{name}.png")


def column(browser: Chromium, number: int) -> list[str]:
    return browser.js(f"{ROWS}.map(row => row.cells[{number}].firstChild.textContent)")


def test_it_shows_everything_without_a_network(desk: Chromium) -> None:
    assert desk.js("document.getElementById('summary').textContent") == (
        "3 tasks, 4 methods, 135 runs: 6 of 12 pairs of task and method are safe at every limit."
    )
    assert desk.js(f"{ROWS}.length") == 12
    assert desk.js(DOTS) == 12
    assert "is not finished" in desk.js("document.getElementById('notes').textContent")
    assert "scores.json is not what the run wrote" in desk.js("document.getElementById('unreadable').textContent")
    assert desk.js("document.querySelectorAll('#ablation-list svg').length") == 4
    assert desk.js("document.querySelectorAll('details').length") == 8
    assert "[object" not in desk.js("document.body.textContent")


def test_unsafe_safe_and_best_look_different_and_can_be_read(desk: Chromium) -> None:
    styles = desk.js(
        f"{ROWS}.slice(0, 4).map(r => [r.cells[1].textContent, r.cells[2]])"
        ".map(([name, cell]) => [name, cell.className, getComputedStyle(cell).color])"
    )
    classes = {name: kind for name, kind, _ in styles}
    assert classes == {"BC-All": "unsafe", "BC-Safe": "safe", "CPQ": "unsafe", "TraC": "best"}
    assert len({colour for _, _, colour in styles}) == 3
    # WCAG's contrast of at least 4.5 for every text of the table against its background.
    contrast = desk.js(
        """(() => {
          const linear = v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
          const light = colour => colour.match(/[\\d.]+/g).slice(0, 3)
            .reduce((sum, v, i) => sum + linear(v / 255) * [.2126, .7152, .0722][i], 0);
          const back = light(getComputedStyle(document.querySelector('.card')).backgroundColor);
          return Math.min(...[...document.querySelectorAll('#table td, #table th button, .soft')].map(e => {
            const ink = light(getComputedStyle(e).color);
            return (Math.max(ink, back) + .05) / (Math.min(ink, back) + .05);
          }));
        })()"""
    )
    assert contrast > 4.5


def test_sorting(desk: Chromium) -> None:
    desk.click("#table th button", 2)
    rewards = [float(v) for v in column(desk, 2)]
    assert rewards == sorted(rewards, reverse=True)
    assert desk.js("document.querySelectorAll('#table th')[2].getAttribute('aria-sort')") == "descending"
    desk.click("#table th button", 2)
    assert [float(v) for v in column(desk, 2)] == sorted(rewards)
    desk.click("#table th button", 3)
    costs = [float(v) for v in column(desk, 3)]
    assert costs == sorted(costs)
    assert desk.js("document.activeElement.textContent") == "cost ↓", "the keyboard stays where it was"


def test_filters(desk: Chromium) -> None:
    def choose(name: str, value: str) -> None:
        desk.js(
            f"(() => {{ const e = document.getElementById('{name}'); e.value = '{value}';"
            " e.dispatchEvent(new Event('input')); })()"
        )

    choose("suite", "Bullet")
    assert set(column(desk, 0)) == {"BallRun", "CarRun"}
    choose("method", "TraC")
    assert column(desk, 0) == ["BallRun", "CarRun"]
    assert desk.js(DOTS) == 2
    choose("method", "")
    desk.click("#only-safe")
    assert desk.js(f"{ROWS}.length") == 4
    assert desk.js("document.getElementById('count').textContent") == "4 of 12 shown"
    desk.click("#only-safe")
    choose("suite", "")
    desk.click("#find")
    desk.write("half tr")
    assert desk.js(f"{ROWS}.map(r => r.textContent).join()").startswith("HalfCheetahVelocityTraC")
    assert desk.js(f"{ROWS}.length") == 1
    choose("find", "")
    desk.click("#variants")
    assert desk.js(f"{ROWS}.length") == 15
    assert "TraC (η 0.5)" in desk.js("document.getElementById('table').textContent")
    desk.click("#variants")
    before = column(desk, 2)
    choose("policy", "best")
    assert column(desk, 2) != before
    choose("policy", "final")
    desk.click("#legend button", 0)
    assert "BC-All" not in desk.js("document.querySelector('#table tbody').textContent")
    assert desk.js(DOTS) == 9
    choose("level", "runs")
    assert desk.js(DOTS) == 81


def test_hovering_tells_and_clicking_leads_to_the_runs_curves_and_settings(desk: Chromium) -> None:
    assert desk.js("getComputedStyle(document.getElementById('tip')).display") == "none"
    dots = desk.js("[...document.querySelectorAll('#scatter .hit')].map(d => d.getAttribute('aria-label'))")
    place = next(i for i, label in enumerate(dots) if label.startswith("TraC on BallRun"))
    desk.hover("#scatter .hit", place)
    desk.until("document.getElementById('tip').textContent.startsWith('TraC on BallRun\\nreward 0.')")
    assert desk.js("document.querySelector('#table tr.lit').textContent").startswith("BallRunTraC")
    desk.click("#scatter .hit", place)
    desk.until("document.getElementById('detail').open")
    assert desk.js("document.getElementById('detail-title').textContent") == "TraC on BallRun"
    assert desk.js("document.querySelectorAll('#detail figure').length") == 5  # over the limits, and over the training
    assert "end of cloning" in desk.js("document.getElementById('detail-body').textContent")
    assert desk.js("document.querySelectorAll('#detail .chips button').length") == 10
    desk.click("#detail .chips button", 5)
    desk.until("document.getElementById('detail-sub').textContent.startsWith('limit 20, seed 10')")
    settings = desk.js("document.querySelector('#detail dl').innerText")
    assert "eta" in settings
    assert "0.25" in settings
    body = desk.js("document.getElementById('detail-body').textContent")
    assert "not DSRL's (made up for the tests)" in body
    assert "identity" in body
    assert desk.js("location.hash").startswith("#run=")
    desk.press("Escape")
    desk.until("!document.getElementById('detail').open")
    desk.until("location.hash === ''")  # the page hears of the closing only afterwards


def test_the_table_leads_there_too_and_the_back_button_returns(desk: Chromium) -> None:
    desk.click("#table tbody tr", 3)
    desk.until("document.getElementById('detail').open")
    desk.js("history.back()")
    desk.until("!document.getElementById('detail').open")
    desk.js("document.querySelector('#table tbody button').focus()")
    desk.press("Enter")
    desk.until("document.getElementById('detail').open")
    desk.click("#close")
    desk.until("!document.getElementById('detail').open")


def test_a_link_to_a_run_opens_it(page: Path) -> None:
    with Chromium() as browser:
        browser.open(page)
        browser.js("location.hash = 'run=20'")
        browser.until("document.getElementById('detail').open")
        browser.js("location.hash = 'run=99999'")
        browser.js("location.hash = 'nonsense'")
        browser.until("!document.getElementById('detail').open")
        assert browser.problems == []


def test_with_the_keyboard_alone(desk: Chromium) -> None:
    desk.js("document.querySelector('#scatter .hit').focus()")
    desk.until("getComputedStyle(document.getElementById('tip')).display === 'block'")
    desk.press("Enter")
    desk.until("document.getElementById('detail').open")
    desk.press("Escape")
    desk.until("!document.getElementById('detail').open")


def test_the_table_need_not_be_scrolled_sideways(desk: Chromium) -> None:
    for width in (1100, 1200, 1300, 1440):
        desk.resize(width, 900)
        assert desk.js("(t => t.scrollWidth <= t.clientWidth)(document.getElementById('table'))"), width


def test_on_a_phone_it_fits_and_can_be_touched(phone: Chromium) -> None:
    assert phone.js("document.documentElement.scrollWidth") == 360
    assert phone.js("document.querySelector('#table').scrollWidth <= document.querySelector('#table').clientWidth")
    shown = "[...document.querySelectorAll('#table th')].filter(th => th.offsetParent).map(th => th.textContent)"
    assert phone.js(shown) == ["task", "method", "reward ↑", "cost ↓"]
    small = phone.js(
        "Math.min(...[...document.querySelectorAll('select, #legend button, #table th button')]"
        ".filter(e => e.offsetParent).map(e => e.getBoundingClientRect().height))"
    )
    assert small >= 24, "large enough for a finger"
    assert (
        phone.js(
            "Math.min(...[...document.querySelectorAll('#scatter text')].map(t => t.getBoundingClientRect().height))"
        )
        > 9
    )
    phone.click("#table tbody tr", 2)
    phone.until("document.getElementById('detail').open")
    assert phone.js("document.getElementById('detail').scrollWidth <= innerWidth")
    _keep(phone, "detail")
    phone.click("#close")
    phone.until("!document.getElementById('detail').open")


def test_a_touch_beside_a_dot_means_the_dot(phone: Chromium) -> None:
    x, y = phone.centre("#scatter .hit", 2)
    phone.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y - 14}])
    phone.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
    phone.until("document.getElementById('detail').open")


def test_two_data_sets_of_one_task_are_counted_as_such(tmp_path: Path) -> None:
    for letter in "de":
        write_run(tmp_path, data=letter * 32, cost=0.5)
    with Chromium() as browser:
        browser.open(make_report([tmp_path], None, Console(file=io.StringIO()), figures=False))
        assert browser.js("document.getElementById('summary').textContent") == (
            "1 task, 2 data sets, 1 method, 18 runs: 2 of 2 pairs of data set and method are safe at every limit."
        )
        assert browser.problems == []


def test_without_ablations_notes_or_best_policies_nothing_empty_is_shown(tmp_path: Path) -> None:
    run = write_run(tmp_path, with_checksums=False, protocol=EvaluationProtocol("BallRun", 4, 0))
    (run / "best_scores.json").unlink()
    with Chromium() as browser:
        browser.open(make_report([tmp_path], None, Console(file=io.StringIO()), figures=False))
        assert browser.js("document.getElementById('ablations').hidden")
        assert browser.js("document.getElementById('unreadable').hidden")
        assert browser.js("document.getElementById('variants-label').hidden")
        assert browser.js(f"{ROWS}.length") == 1
        assert browser.problems == []


def test_a_limit_that_is_violated_shows_though_the_mean_is_safe(tmp_path: Path) -> None:
    write_run(tmp_path, limits=[10.0, 20.0], cost=0.1, spread=0.01, precision="float32")
    write_run(tmp_path, limits=[40.0], cost=2.0, spread=0.01, precision="bfloat16")
    with Chromium() as browser:
        browser.open(make_report([tmp_path], None, Console(file=io.StringIO()), figures=False))
        cell = f"{ROWS}[0].cells[3]"
        assert browser.js(f"{cell}.className") == "partly"
        assert browser.js(f"{cell}.textContent").endswith("(2/3 †)")
        assert browser.js(f"getComputedStyle({cell}).fontStyle") == "italic"
        assert browser.js("document.getElementById('summary').textContent").endswith(
            "0 of 1 pairs of task and method are safe at every limit, 1 in the mean over limits."
        )
        browser.click("#only-safe")
        assert browser.js(f"{ROWS}.length") == 0
        assert "† Not trained in the same precision" in browser.js("document.getElementById('notes').textContent")
        assert browser.problems == []


def test_each_limit_has_its_verdict(desk: Chromium) -> None:
    heads = desk.js("[...document.querySelectorAll('#table thead th')].map(head => head.textContent)")
    assert heads[-3:-1] == ["above limit", "worst tenth"]
    desk.js("location.hash = '#cell=0'")
    assert desk.js("document.querySelectorAll('#verdicts tbody tr').length") == 3
    told = desk.js("[...document.querySelectorAll('#verdicts tbody tr')].map(row => row.cells[5].textContent)")
    assert told == ["UNSAFE"] * 3, "BC-All at four times the limit"
    shares = desk.js("[...document.querySelectorAll('#verdicts tbody tr')].map(row => row.cells[3].textContent)")
    assert shares == ["100 %"] * 3


def test_estimates_stand_beside_scores_with_what_they_rest_on(desk: Chromium) -> None:
    cells = "JSON.parse(document.getElementById('data').textContent).cells"
    with_them = desk.js(f"{cells}.findIndex(cell => cell.runs.some(run => run.estimated))")
    without = desk.js(f"{cells}.findIndex(cell => !cell.runs.some(run => run.estimated))")
    desk.js(f"location.hash = 'cell={with_them}'")
    desk.until("document.querySelectorAll('#estimates tbody tr').length === 9")
    text = desk.js("document.querySelector('#estimates').textContent")
    assert "90 % intervals" in text
    assert "were held out" in text
    assert "Assumed: " in text
    desk.js(f"location.hash = 'cell={without}'")
    desk.until("document.querySelector('#estimates') === null")


def test_reward_and_cost_are_drawn_over_the_limit(tmp_path: Path) -> None:
    write_run(tmp_path, method="trac-any", limits=(5, 10, 15, 20, 30, 40, 60), reward=0.6, cost=0.5)
    page = make_report([tmp_path], None, Console(file=io.StringIO()), figures=False)
    with Chromium() as browser:
        browser.open(page)
        browser.js("location.hash = '#cell=0'")
        assert browser.js("document.querySelectorAll('#over-limits polyline').length") == 2
        assert browser.js("document.querySelectorAll('#over-limits circle').length") == 14
        _keep(browser, "over-limits")
        assert browser.problems == []


def test_what_is_not_known_of_a_cell_is_left_out(desk: Chromium) -> None:
    desk.js("location.hash = '#cell=0'")
    assert "null" not in desk.js("document.getElementById('detail-body').textContent")
