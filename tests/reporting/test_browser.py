"""The report in a real browser, from `file://`: it asks for nothing, its keys and filters work, it
prints whole.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest

from jaxtrade.formatting import MINUS
from jaxtrade.reporting import collect, make
from tests import webdriver
from tests.reporting.made import made_run
from tests.reporting.parsed import parsed, unpacked

pytestmark = pytest.mark.slow
SYMBOL = "<script>document.title='owned'</script>"
SESSIONS, EACH, TRADES = 140, 430, 7  # 60,200 bars
LIMIT_MS = 20_000  # until it is ready: it takes about half a second on an idle machine; a broken page never is


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    webdriver.skip_or_fail()
    run = made_run(
        tmp_path_factory.mktemp("runs") / "made",
        sessions=SESSIONS,
        each=EACH,
        trades=TRADES,
        symbol=SYMBOL,
        optional=True,
        labels=(f"a label of {SYMBOL}",),
    )
    report = make.make(collect.collect(collect.choose(run)))
    assert report.dropped == 0
    return make.write(report, run / "report")["report.html"]


@pytest.fixture(scope="module")
def shown(tmp_path_factory, page):
    folder = tmp_path_factory.mktemp("profile")
    with webdriver.browser(folder) as made:
        yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def opened(shown, page):
    """The page, loaded afresh."""
    shown.open(page)
    return shown


def listed(browser):
    """The cells of the rows of the table of trades that are listed."""
    return browser.run(
        "return [...document.querySelectorAll('#trades tbody tr:not([hidden])')]"
        ".map((row) => [...row.cells].map((cell) => cell.textContent))"
    )


def current(browser):
    """The number of the trade that is explained."""
    [found] = browser.run(
        "return [...document.querySelectorAll('[aria-current=true]')]"
        ".map((row) => row.cells[0].textContent)"
    )
    return found


def choose(browser, name, value):
    browser.run(
        "const [name, value] = arguments; const box = document.querySelector(`select[name=${name}]`);"
        "box.value = value; box.dispatchEvent(new Event('change', {bubbles: true}));",
        name,
        value,
    )


def test_it_asks_for_nothing_and_reports_no_error(opened, page, capsys):
    """One request, the file itself; an empty console; ready within a generous limit, which is
    printed.
    """
    opened.run("document.getElementById('go-next').click()")
    opened.run("document.getElementById('theme').click()")
    assert opened.requests() == [page.resolve().as_uri()]
    assert opened.log("browser") == []
    ready = int(opened.run("return document.documentElement.dataset.ready"))
    with capsys.disabled():
        print(
            f"\nready in {ready} ms with {SESSIONS * EACH:,} bars, {page.stat().st_size / 1e6:.2f} MB"
        )
    assert 0 < ready < LIMIT_MS
    assert page.stat().st_size <= 3_000_000


def test_a_script_that_does_not_belong_to_the_page_is_refused(opened):
    """The policy holds: an element that is added later does not run, and says so on the console."""
    opened.run(
        "const more = document.createElement('script'); more.textContent = 'window.owned = 1';"
        "document.body.append(more);"
    )
    assert opened.run("return window.owned === undefined")
    assert "Content Security Policy" in opened.log("browser")[0]["message"]


def test_the_bars_are_unpacked_as_they_were_packed(opened, page):
    """JavaScript reads the columns that Python wrote."""
    live = parsed(page.read_text(encoding="utf-8")).live
    expected = unpacked(live["bars"])
    found = opened.ask(
        "execute/async",
        {
            "args": [],
            "script": (
                "const done = arguments[0]; "
                "jaxtrade.unpack(JSON.parse(document.getElementById('live').textContent).bars)"
                ".then((found) => done(Object.fromEntries(Object.entries(found).map(([k, v]) => [k, [...v]]))))"
            ),
        },
    )
    assert set(found) == set(expected)
    for name, values in expected.items():
        assert found[name] == values.tolist(), name


def test_keys_go_through_the_trades_and_zoom(opened):
    assert current(opened) == "1"
    opened.keys("jjj")
    assert current(opened) == "4"
    opened.keys("k")
    assert current(opened) == "3"
    facts = opened.run("return document.getElementById('trade-facts').textContent")
    row = listed(opened)[2]
    assert row[5] in facts
    assert row[7] in facts
    assert "HOLD, BUY, SELL" in facts
    opened.keys("kkkkkk")
    assert current(opened) == "1", "there is none before the first"
    before = opened.run("return document.getElementById('price').innerText")
    opened.keys("-")
    opened.keys(webdriver.KEYS["right"], "#price")
    assert opened.run("return document.getElementById('price').innerText") == before, (
        "only the picture changes"
    )


def test_every_control_is_reached_by_the_keyboard(opened):
    """Tab alone leads from the first link over each control to the charts; each shows where the
    focus is.
    """
    reached: list[Any] = []
    for _ in range(120):
        opened.keys(webdriver.KEYS["tab"], ":focus" if reached else "body")
        reached.append(
            opened.run(
                "const at = document.activeElement;"
                "return at.id || at.name || at.textContent.slice(0, 30)"
            )
        )
        if reached[-1] == "price":
            break
    wanted = {
        "theme",
        "side",
        "result",
        "reason",
        "session",
        "price",
        "go-previous",
        "go-next",
        "go-closer",
        "go-wider",
    }
    assert wanted <= set(reached)
    assert reached[0] == "Skip to the figures"
    assert opened.run("return getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_filters_choose_the_trades(opened):
    every = listed(opened)
    assert len(every) == SESSIONS * TRADES
    choose(opened, "side", "short")
    choose(opened, "result", "lost")
    shorts = [row for row in every if row[2] == "short" and row[10].startswith(MINUS)]
    assert listed(opened) == shorts
    assert 0 < len(shorts) < len(every)
    assert current(opened) == shorts[0][0]
    opened.keys("j")
    assert current(opened) == shorts[1][0]
    choose(opened, "session", every[-1][1])
    rows = [row for row in shorts if row[1] == every[-1][1]]
    assert listed(opened) == rows
    said = opened.run("return document.getElementById('which').textContent")
    assert said.endswith(f"of {len(rows)} listed") if rows else said == "No trade is listed"


def test_paper_has_every_table_in_full(opened, page, tmp_path):
    """Each caption, and each cell of each table, is in the printed text; filtered trades too, and
    the dark theme's.
    """
    choose(opened, "side", "short")
    (tmp_path / "page.pdf").write_bytes(opened.pdf())
    done = subprocess.run(
        ["pdftotext", "-layout", "page.pdf", "-"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    paper = _bare(done.stdout)
    tables = parsed(page.read_text(encoding="utf-8")).tables
    assert len(tables) > 20
    for table in tables:
        assert _bare(table.caption) in paper, table.caption
        lacking = [
            cell
            for row in table.rows
            for cell in row
            for word in cell.split()
            if _bare(word) not in paper
        ]
        assert lacking == [], table.caption
    numbers = {row[0] for row in next(table for table in tables if table.id == "trades").rows}
    lines = {line.split()[0] for line in done.stdout.splitlines() if len(line.split()) > 9}
    assert numbers <= lines, "every trade has a line"


def _bare(text):
    """Without white space, which a layout changes."""
    return re.sub(r"\s+", "", text)


def test_without_scripts_the_static_parts_remain(shown, page):
    """Tables and charts are visible; what needs a script is not."""
    shown.devtools("Emulation.setScriptExecutionDisabled", value=True)
    try:
        shown.ask("url", {"url": page.resolve().as_uri()})
        text = shown.ask(f"element/{_element(shown, 'main')}/text", method="GET")
        for caption in (
            "Figures of all agents",
            "Sessions",
            "Simulated accounts",
            "Trades of the strategy pass",
        ):
            assert caption in text
        assert shown.ask(f"element/{_element(shown, '#equity-static svg')}/displayed", method="GET")
        for hidden in ("#trade-view", "#equity-live", "#theme"):
            assert not shown.ask(f"element/{_element(shown, hidden)}/displayed", method="GET"), (
                hidden
            )
    finally:
        shown.devtools("Emulation.setScriptExecutionDisabled", value=False)


def _element(browser, selector):
    return browser.ask("element", {"using": "css selector", "value": selector})[webdriver.ELEMENT]


def test_a_narrow_screen_does_not_scroll_sideways(shown, page):
    shown.devtools(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=800,
        deviceScaleFactor=2,
        mobile=True,
    )
    try:
        shown.open(page)
        assert shown.run("return document.documentElement.scrollWidth") <= 390
    finally:
        shown.devtools("Emulation.clearDeviceMetricsOverride")


def picture(browser, selector):
    """The pixels of a canvas."""
    return browser.run(
        "return document.querySelector(arguments[0]).toDataURL()", f"{selector} canvas"
    )


def test_zooming_one_chart_of_a_pair_zooms_the_other(opened):
    """A drag over the equity changes both pictures; so do closer, wider and the arrows that of the
    prices.
    """
    place = _element(opened, "#equity-live .u-over")
    origin = {webdriver.ELEMENT: place}
    before = [picture(opened, f"#equity-live > div:nth-child({i})") for i in (1, 2)]
    opened.ask(
        "actions",
        {
            "actions": [
                {
                    "type": "pointer",
                    "id": "mouse",
                    "actions": [
                        {"type": "pointerMove", "origin": origin, "x": -200, "y": 0},
                        {"type": "pointerDown", "button": 0},
                        {"type": "pointerMove", "origin": origin, "x": 0, "y": 0, "duration": 100},
                        {"type": "pointerUp", "button": 0},
                    ],
                }
            ]
        },
    )
    opened.wait("return new Promise((done) => setTimeout(() => done(true), 200))")
    after = [picture(opened, f"#equity-live > div:nth-child({i})") for i in (1, 2)]
    assert before[0] != after[0]
    assert before[1] != after[1]
    seen = [picture(opened, "#price")]
    for keys, where in (("-", "body"), (webdriver.KEYS["right"], "#price"), ("+", "body")):
        opened.keys(keys, where)
        opened.wait("return new Promise((done) => requestAnimationFrame(() => done(true)))")
        seen.append(picture(opened, "#price"))
    assert len(set(seen)) == 4
