"""Files of the pages: the vendored library is the published one, own scripts keep the rules,
colours can be read.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
from importlib import resources
from pathlib import Path

import pytest

from jaxtrade.web import assets

ROOT = Path(__file__).resolve().parents[1]
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
    assert "MIT License" in (folder / "LICENSE").read_text(encoding="utf-8")
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
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
    text = path.read_text(encoding="utf-8")
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
    found = re.search(THEMES[theme], (WEB / "theme.css").read_text(encoding="utf-8"))
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


# Machado, Oliveira and Fernandes (2009), severity 1.0, for linear RGB.
BLIND = {
    "protan": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deutan": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritan": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def seen(colour, kind):
    """Linear RGB of a colour as people with a kind of colour blindness see it."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return tuple(
        min(1.0, max(0.0, sum(m * part for m, part in zip(row, linear, strict=True))))
        for row in BLIND[kind]
    )


def lab(linear):
    """CIE L*a*b* (D65) of linear RGB."""
    rows = (
        (0.4124564, 0.3575761, 0.1804375),
        (0.2126729, 0.7151522, 0.0721750),
        (0.0193339, 0.1191920, 0.9503041),
    )
    xyz = [
        sum(m * part for m, part in zip(row, linear, strict=True)) / white
        for row, white in zip(rows, (0.95047, 1.0, 1.08883), strict=True)
    ]
    x, y, z = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", BLIND)
def test_gain_and_loss_differ_for_every_colour_vision(theme, kind):
    """And so do equity and its floor. 10 is a difference that is seen at a glance (CIE 1976)."""
    found = variables(theme)
    for one, other in (("gain", "loss"), ("own", "floor")):
        apart = [
            a - b
            for a, b in zip(lab(seen(found[one], kind)), lab(seen(found[other], kind)), strict=True)
        ]
        assert sum(each**2 for each in apart) ** 0.5 > 10, (one, other)


def test_the_colours_of_agents_differ():
    for theme in ("light", "dark"):
        found = variables(theme)
        colours = [found[name] for name in ("own", "s1", "s2", "s3", "s4", "s5")]
        assert all(one != other for one, other in itertools.combinations(colours, 2))
