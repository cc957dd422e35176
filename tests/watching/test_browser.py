"""The live page in a real browser, beside a run that really trains, is killed and goes on."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time

import pytest

from jaxtrade.watching.metrics import Reader
from jaxtrade.watching.server import WatchServer, new_token, routes
from tests import webdriver
from tests.children import sets
from tests.reading import ROOT

pytestmark = pytest.mark.slow
LIMIT = 600.0  # seconds until something that must happen counts as not happening; it only ends a broken test
SETTINGS = (
    "data.source=synthetic",
    "data.synthetic_sessions=12",
    "split.validation_sessions=2",
    "split.test_sessions=2",
    "control.evaluate_every=2",
    "rollout.num_envs=16",
    "rollout.num_steps=16",
    "network.hidden=[8]",
    "ppo.num_minibatches=2",
    "train.num_seeds=2",
    "train.chunk_updates=4",
    "train.checkpoint_every=2",
    "train.total_timesteps=40_000_000",
    "train.tensorboard=false",
)


def train(folder, *more):
    words = [sys.executable, "-m", "jaxtrade", "train", *more]
    return subprocess.Popen(
        words,
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


def kill(process):
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    webdriver.skip_or_fail()
    folder = tmp_path_factory.mktemp("watched")
    (folder / "runs").mkdir()
    made = WatchServer(routes(folder / "runs", Reader()), new_token())
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield made, folder
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver.skip_or_fail()
    profile = tmp_path_factory.mktemp("profile")
    with webdriver.browser(profile) as made:
        yield made
    shutil.rmtree(profile, ignore_errors=True)


def eventually(found, what):
    limit = time.monotonic() + LIMIT
    while not (value := found()):
        assert time.monotonic() < limit, f"it did not happen: {what}"
        time.sleep(0.05)
    return value


def update_shown(browser):
    """The newest update of the first curve that the page draws; 0 if it draws none."""
    return int(
        browser.run(
            "const curve = page.curves.get('approx_kl'); return curve && curve.update.length ? "
            "curve.update[curve.update.length - 1] : 0"
        )
    )


def text(browser, element):
    return browser.run("return document.getElementById(arguments[0]).textContent", element)


def test_a_run_that_trains_is_killed_and_goes_on(server, browser):
    made, folder = server
    browser.ask("url", {"url": made.address})
    assert browser.run("return [location.search, document.cookie]") == [
        "",
        "",
    ]  # the token left the address
    process = train(
        folder,
        "quickstart",
        "--run-dir",
        "runs/live",
        *sets(*SETTINGS),
    )
    try:
        first = eventually(lambda: update_shown(browser), "the first chunk is shown")
        eventually(lambda: update_shown(browser) > first, "a further chunk is shown")
        eventually(lambda: "running" in text(browser, "facts"), "the run is running")
        eventually(
            lambda: not browser.run("return document.getElementById('validation').hidden"),
            "a session is shown",
        )
        assert "drawdown floor" in text(browser, "session-note")
        assert browser.run(
            "return session.price.width === document.getElementById('session-charts').clientWidth"
        )
        assert browser.run("return [...page.charts.keys()].length") >= 8
        assert not browser.run(
            "return document.getElementById('band-note').hidden"
        )  # two seeds are a band
        kill(process)
        eventually(lambda: "died" in text(browser, "facts"), "the kill is noticed")
        process = train(folder, "--resume", "runs/live")
        eventually(lambda: "running" in text(browser, "facts"), "the resumed run is running")
        newest = update_shown(browser)
        eventually(lambda: update_shown(browser) > newest, "the resumed run is shown")
    finally:
        kill(process)
    severe = [entry["message"] for entry in browser.log("browser") if entry["level"] == "SEVERE"]
    assert severe == []


def test_the_page_is_used_by_the_keyboard_and_fits_a_narrow_screen(server, browser, monkeypatch):
    shutil.copytree(ROOT / "tests/fixtures/run_0_1_0", server[1] / "runs" / "old")
    browser.ask("url", {"url": server[0].address})
    eventually(
        lambda: browser.run("return document.querySelectorAll('button.run').length") == 2,
        "both are listed",
    )
    browser.run(
        "document.querySelector('button.run[data-run=old]').focus(); document.activeElement.click()"
    )
    eventually(lambda: text(browser, "name") == "old", "the run is chosen")
    time.sleep(2.5)  # two more polls rebuild the list
    assert browser.run("return document.activeElement.dataset.run") == "old"
    assert browser.run("return document.getElementById('runs-note').hidden")
    monkeypatch.setattr("jaxtrade.watching.server.MOST_RUNS", 0)  # as if 200 runs were younger
    eventually(
        lambda: text(browser, "runs-note").startswith("1 of 2 runs are listed"), "the list is cut"
    )
    assert text(browser, "name") == "old"
    browser.ask("window/rect", {"width": 420, "height": 900})
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")


def test_without_the_token_the_page_says_how_to_get_in(server, browser):
    browser.ask("cookie", method="DELETE")
    browser.ask("url", {"url": f"http://127.0.0.1:{server[0].port}/"})
    shown = browser.run("return document.body.textContent")
    assert "jaxtrade watch" in shown
