"""Headless Chromium for the tests of pages, by a small WebDriver client (W3C WebDriver)."""

import base64
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager

import pytest

REQUIRED = "JAXTRADE_BROWSER"  # set by .ci/run: a missing browser is then a failure
PROGRAMS = ("chromium", "chromedriver")
NEEDED = (*PROGRAMS, "pdftotext")
PACKAGES = "chromium chromium-driver poppler-utils"  # of Debian
KEYS = {"down": "\ue015", "tab": "\ue004", "left": "\ue012", "right": "\ue014"}
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--window-size=1280,1000",
)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # the key of an element in the protocol


def skip_or_fail():
    """Skip the test where a program is missing; fail where the environment says that they must be
    there.
    """
    if lacking := [name for name in NEEDED if shutil.which(name) is None]:
        said = f"{', '.join(lacking)} not found (Debian: apt-get install {PACKAGES})"
        if os.environ.get(REQUIRED):
            pytest.fail(said)
        pytest.skip(said)


class Browser:
    """A session of chromedriver."""

    def __init__(self, address, folder):
        options = {"args": [*FLAGS, f"--user-data-dir={folder}"]}
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        self._base = address
        self._base = f"{address}/session/{self.ask('session', {'capabilities': {'alwaysMatch': wanted}})['sessionId']}"

    def ask(self, path, values=None, method="POST"):
        """The value that a command of the protocol returns. Raises urllib.error.HTTPError if it
        fails.
        """
        body = None if method != "POST" else json.dumps(values or {}).encode()
        request = urllib.request.Request(
            f"{self._base}/{path}".rstrip("/"),
            body,
            method=method,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            return json.loads(answer.read())["value"]

    def open(self, path):
        """Load a file, and wait until its scripts have said that they are ready, for at most a
        minute. The logs begin with it: what Chromium's own first page asks for is left out."""
        self.ask("url", {"url": "about:blank"})
        self.log("browser")
        self.log("performance")
        self.ask("url", {"url": path.resolve().as_uri()})
        self.wait("return document.documentElement.dataset.ready")

    def run(self, script, *args):
        """What a script returns."""
        return self.ask("execute/sync", {"script": script, "args": list(args)})

    def wait(self, script):
        """The first true value of a script."""
        for _ in range(600):
            if found := self.run(script):
                return found
            time.sleep(0.1)
        raise TimeoutError(f"never true in a minute: {script}")

    def keys(self, text, selector="body"):
        """Type into an element."""
        found = self.ask("element", {"using": "css selector", "value": selector})[ELEMENT]
        self.ask(f"element/{found}/value", {"text": text})

    def devtools(self, command, **values):
        """A command of the DevTools protocol."""
        return self.ask("goog/cdp/execute", {"cmd": command, "params": values})

    def log(self, kind):
        """Entries since the last call: `browser` (the console), `performance` (DevTools events)."""
        return self.ask("se/log", {"type": kind})

    def requests(self):
        """Addresses that were asked for since the last call."""
        events = [json.loads(each["message"])["message"] for each in self.log("performance")]
        return [
            each["params"]["request"]["url"]
            for each in events
            if each["method"] == "Network.requestWillBeSent"
        ]

    def pdf(self):
        """The page as it prints."""
        return base64.b64decode(self.ask("print", {"background": False}))


@contextmanager
def browser(folder):
    """A browser with a profile of its own in `folder`. It ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    driver = subprocess.Popen(
        ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(300):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.1)
        made = Browser(f"http://127.0.0.1:{port}", folder)
        yield made
        made.ask("", method="DELETE")
    finally:
        driver.terminate()
        driver.wait(30)
