"""Files of the pages: the vendored library is the published one, own scripts keep the rules,
colours can be read.
"""

import base64
import hashlib
import itertools
import re
from importlib import resources

import pytest

from jaxtrade.web import assets
from tests.reading import ROOT

WEB = ROOT / "jaxtrade" / "web"
# Of uplot-1.6.32.tgz from the npm registry, whose sha512 is
# KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgkMy+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw==
UPLOT = {
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
# What a script of ours must not use: text that becomes HTML or code, handlers in attributes, the
# network, storage.
FORBIDDEN = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|"
    r"\beval\b|\bFunction\(|set(?:Timeout|Interval)\(\s*['\"`]|\.on[a-z]+\s*=|setAttribute\(\s*['\"`](?:on|style)|"
    r"\bfetch\(|XMLHttpRequest|WebSocket|EventSource|sendBeacon|\bimport\b|localStorage|https?:"
)
THEMES = {
    "light": r":root \{([^}]*)\}",
    "dark": r":root\[data-theme=\"dark\"\] \{([^}]*)\}",
    "dark of the system": r":root:not\(\[data-theme=\"light\"\]\) \{([^}]*)\}",
}
TEXTS = (
    "ink",
    "muted",
    "link",
    "gain",
    "loss",
    "own",
    "floor",
    "s4",
)  # s4 and floor also name levels in a chart
LINES = ("s1", "s2", "s3", "s5", "focus")


def own_files(suffix):
    return sorted(WEB.glob(f"*{suffix}"))


def test_the_vendored_library_is_the_published_one():
    folder = WEB / "vendor" / "uplot"
    assert {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()
    } == UPLOT
    assert "MIT License" in (folder / "LICENSE").read_text()
    notice = (ROOT / "NOTICE").read_text()
    assert "uPlot 1.6.32" in notice
    assert "jaxtrade/web/vendor/uplot/" in notice


def test_every_file_is_loaded_and_packed():
    """No file is forgotten: the page loads each, and an installed package can read each."""
    loaded = {*assets.STYLES, *assets.SCRIPTS, *assets.LIVE}
    assert loaded == {path.name for suffix in (".css", ".js") for path in own_files(suffix)} | {
        f"{assets.UPLOT}{name}" for name in UPLOT if name != "LICENSE"
    }
    for name in loaded:
        assert resources.files("jaxtrade.web").joinpath(*name.split("/")).is_file()
        assert assets.text(name)


def test_files_can_stand_in_an_element():
    """Nothing in them ends the element that holds them, or begins another state of the parser."""
    for name in (*assets.STYLES, *assets.SCRIPTS):
        assert not re.search(r"</(script|style)|<!--|<script", assets.text(name), re.IGNORECASE), (
            name
        )


@pytest.mark.parametrize("path", own_files(".js"), ids=lambda path: path.name)
def test_own_scripts_keep_the_rules(path):
    text = path.read_text()
    asks = r"\bfetch\(" if path.name == "watch.js" else r"(?!)"  # the live page asks its own server
    assert [line for line in text.splitlines() if FORBIDDEN.search(re.sub(asks, "", line))] == []
    assert text.splitlines()[1 if text.startswith("//") else 0].startswith(("//", '"use strict";'))
    assert '"use strict";' in text
    assert len(text.splitlines()) <= 200
    assert max(map(len, text.splitlines())) <= 140


@pytest.mark.parametrize(
    "line",
    [
        "a.innerHTML = b",
        "eval(b)",
        "new Function(b)",
        "e.onclick = f",
        "fetch(u)",
        "e.setAttribute('style', s)",
        "setTimeout('f()', 1)",
    ],
)
def test_the_rules_are_seen_to_be_broken(line):
    assert FORBIDDEN.search(line)


def test_the_styles_load_nothing():
    for name in assets.STYLES:
        assert not re.search(r"url\(|@import|https?:", assets.text(name)), name


def test_a_hash_is_that_of_the_specification():
    """W3C CSP 3, section 2.3.1 gives no vector; this one is computed by hand from FIPS 180-4's of
    the empty text.
    """
    digest = bytes.fromhex("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
    assert assets.source_hash("") == f"'sha256-{base64.b64encode(digest).decode()}'"


def variables(theme):
    """Name -> colour, of a theme."""
    found = re.search(THEMES[theme], (WEB / "theme.css").read_text())
    assert found is not None, theme
    return dict(re.findall(r"--([a-z0-9]+): (#[0-9a-f]{6});", found[1]))


def luminance(colour):
    """Relative luminance of WCAG 2.2."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    """Contrast ratio of WCAG 2.2, 1 to 21."""
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_of_known_pairs():
    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert contrast("#777777", "#ffffff") == pytest.approx(
        4.48, abs=0.005
    )  # the pair that fails by a little


@pytest.mark.parametrize("theme", THEMES)
def test_text_and_lines_can_be_read_in_each_theme(theme):
    found = variables(theme)
    assert set(found) == set(variables("light"))
    for ground in ("page", "panel"):
        for name in TEXTS:
            assert contrast(found[name], found[ground]) >= 4.5, (name, ground)
        for name in LINES:
            assert contrast(found[name], found[ground]) >= 3.0, (name, ground)


def test_both_ways_to_the_dark_theme_have_the_same_colours():
    assert variables("dark") == variables("dark of the system")
    assert variables("dark") != variables("light")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("one", "other"), [("gain", "loss"), ("own", "floor")])
def test_gain_and_loss_differ_for_every_colour_vision(theme, one, other):
    """In blue, which is seen without red or green, and in red, which is seen without blue."""
    found = variables(theme)
    for at in (1, 5):
        assert abs(int(found[one][at : at + 2], 16) - int(found[other][at : at + 2], 16)) > 40


def test_the_colours_of_agents_differ():
    for theme in ("light", "dark"):
        found = variables(theme)
        colours = [found[name] for name in ("own", "s1", "s2", "s3", "s4", "s5")]
        assert all(one != other for one, other in itertools.combinations(colours, 2))
