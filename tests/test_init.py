"""`jaxtrade init`: what it recognises, what it asks, what it writes, and what it refuses."""

import shlex

import numpy as np
import pytest

from jaxtrade.cli import init_questions, main
from jaxtrade.cli.init import hold_out
from jaxtrade.config import load_config, make_config
from jaxtrade.data.contracts import get_contract
from jaxtrade.data.examine import Clock, clear_winner, clocks, examine, price_step
from jaxtrade.data.formats.recognise import StatedKeys
from jaxtrade.data.read.bars import load_bundled
from jaxtrade.data.sources import bars_of
from jaxtrade.errors import ConfigError
from tests import vendors
from tests.messages import missing, refuses

ES, EURUSD = get_contract("ES"), get_contract("EURUSD")
SERVER = "America/New_York+7h"
CLOCK = ("time_zone", "stamp")
NOTHING = StatedKeys({}, None, None, 1.0, None)


@pytest.fixture(scope="module")
def es():
    return load_bundled(ES)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def typed(monkeypatch):
    """Answers of a person at a terminal, taken in turn."""
    answers = []
    monkeypatch.setattr(init_questions, "may_ask", lambda refused: not refused)
    monkeypatch.setattr("builtins.input", lambda prompt: answers.pop(0) if answers else _end())
    return answers


def _end():
    raise EOFError


def assert_reads(path, expected):
    """The configuration reads the bars that the file was written from."""
    found = bars_of(load_config(str(path)))
    for name in ("time", "open", "high", "low", "close"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)


# name of the file -> (content, flags that it needs)
KNOWN = {
    "es.csv": (vendors.mt5, ["--market", "ES", "--set", f"data.time_zone={SERVER}"]),
    "ES 12-13.Last.txt": (
        vendors.ninjatrader,
        ["--market", "ES", "--set", "data.time_zone=UTC", "--set", "data.stamp=close"],
    ),
    "glbx.csv": (vendors.databento, []),
    "yahoo.csv": (vendors.yahoo, ["--set", "data.stamp=open"]),
}


def test_a_currency_needs_its_rates_and_those_of_the_same_years(here, capsys):
    """EURGBP earns pounds: without bars of GBPUSD, or with those of another year, nothing is
    written.
    """

    def hours(year, price, day=6):
        days = np.arange(f"{year}-10-{day:02d}T22", f"{year}-10-11", dtype="datetime64[h]")
        return "time,open,high,low,close\n" + "".join(
            f"{at}:00Z,{price},{price},{price},{price}\n" for at in days
        )

    (here / "EURGBP.csv").write_text(hours(2013, 0.84, 7))
    for year, price in ((2013, 1.6), (2019, 1.3)):
        (here / f"rates{year}.csv").write_text(hours(year, price))
    flags = [
        "init",
        "EURGBP.csv",
        "--non-interactive",
        "--contract",
        "EURGBP",
        "--set",
        "data.stamp=open",
    ]
    refuses(capsys, flags, "--set data.conversion=FILE")
    refuses(capsys, [*flags, "--set", "data.conversion=rates2019.csv"], "rates span 2019")
    assert not (here / "EURGBP.yaml").exists()
    assert main([*flags, "--set", "data.conversion=rates2013.csv"]) == 0
    assert load_config("EURGBP.yaml").data.conversion == "rates2013.csv"


@pytest.mark.slow
@pytest.mark.parametrize("name", KNOWN)
def test_flags_alone_write_a_configuration_that_reads_the_file(es, here, name, capsys):
    write, flags = KNOWN[name]
    (here / name).write_bytes(write(es))
    assert main(["init", name, "--non-interactive", *flags]) == 0
    out = here / f"{name.rpartition('.')[0]}.yaml"
    assert_reads(out, es)
    said = capsys.readouterr().out
    commands = [shlex.split(line) for line in said.splitlines()[-2:]]
    assert commands == [["jaxtrade", "data", "describe", out.name], ["jaxtrade", "train", out.name]]
    assert not missing(said, "6826 bars", "60 s", "ES, no fault")
    config = load_config(str(out))
    assert config.split.test_sessions == 1
    assert config.train == load_config("quickstart").train


def test_the_report_says_what_was_recognised(es, here, capsys):
    (here / "es.csv").write_bytes(vendors.mt5(es))
    assert main(["init", "es.csv"]) == 2  # there is no terminal
    said = capsys.readouterr()
    for part in (
        "es.csv: ",
        "MT5 export",
        "time = <DATE> <TIME>",
        "6,826 rows, usually 60 s apart",
        "first     2013.10.07 01:00:00",
        "last      2013.10.12 00:14:00",
        "1640.00 .. 1700.25, smallest step 0.25; one side",
    ):
        assert part in said.out
    assert not missing(said.err, "2 things", "--market ES", "--contract FILE", "hours of ES")
    assert not missing(said.err, "1  ES ", "by the file's name and prices (best fit)", "2  MES ")
    assert not missing(
        said.err, f"--set data.time_zone={SERVER}", "with open stamps 0.00 %", "(best fit)"
    )
    assert list(here.iterdir()) == [here / "es.csv"]


def test_a_person_is_asked_only_what_the_file_does_not_say(es, here, typed, capsys):
    (here / "bars.csv").write_bytes(vendors.mt5(es))
    typed += ["1", ""]  # the market, by its number; the time zone that is offered
    assert main(["init", "bars.csv"]) == 0
    assert typed == []
    assert_reads(here / "bars.yaml", es)
    (here / "glbx.csv").write_bytes(vendors.databento(es))
    assert main(["init", "glbx.csv"]) == 0  # nothing is asked
    assert "instrument: ES" in capsys.readouterr().out


def test_wrong_answers_are_asked_again_and_none_is_an_error(es, here, typed, capsys):
    (here / "bars.txt").write_bytes(vendors.ninjatrader(es))
    typed += ["!", "ES", "Mars", "UTC", "end", "close"]
    assert main(["init", "bars.txt"]) == 0
    assert_reads(here / "bars.yaml", es)
    said = capsys.readouterr().out
    assert "unknown time zone 'Mars'" in said
    assert not missing(said, "open, close", "found 'end'")
    typed += ["ES", "Mars", "Moon", "Venus"]
    refuses(capsys, ["init", "bars.txt", "--out", "other.yaml"], "'Time zone")
    assert not (here / "other.yaml").exists()


def test_refused_bars_do_not_lose_the_answers(es, here, typed, capsys):
    """Hours of UTC read as Chicago's: the clock is told first, and the answers are given back."""
    (here / "bars.txt").write_bytes(vendors.ninjatrader(es))
    typed += ["NQ", "America/Chicago", "close"]
    assert main(["init", "bars.txt", "--set", "train.checkpoint_every=7"]) == 2
    said = capsys.readouterr()
    assert "--contract my_nq.yaml" in said.err
    assert not missing(said.out, "data.time_zone=America/Chicago", "with UTC and close 0.00 %")
    assert shlex.split(said.out.splitlines()[-1]) == [
        *("jaxtrade", "init", "bars.txt", "--market", "NQ", "--set", "train.checkpoint_every=7"),
        *("--set", "data.time_zone=America/Chicago", "--set", "data.stamp=close"),
    ]
    assert list(here.iterdir()) == [here / "bars.txt"]


def test_a_new_market_gets_a_contract_file(es, here, typed):
    (here / "bars.csv").write_bytes(vendors.mt5(es))
    typed += ["FOO", "future", "", "0", "x", "", "12.5", "", "", "", "0", "1.5", "", ""]
    assert main(["init", "bars.csv"]) == 0
    config = load_config("bars.yaml")
    assert (config.data.market, config.data.contract) == ("FOO", "FOO.contract.yaml")
    bars = bars_of(config)
    assert bars.contract.symbol == "FOO"
    assert bars.contract.tick_mills == 12_500
    assert str(bars.contract.tick_size) == "0.25"
    assert (bars.time == es.time).all()
    typed += ["FOO"]
    assert main(["init", "bars.csv", "--out", "again.yaml"]) == 2  # its file is not overwritten


def test_an_unknown_market_without_a_terminal_names_the_known_ones(es, here, capsys):
    (here / "bars.csv").write_bytes(vendors.databento(es))
    assert main(["init", "bars.csv", "--market", "FOO"]) == 2
    said = capsys.readouterr().err
    assert not missing(said, "market 'FOO'", "known: NQ, ES,", "--contract FILE")


def test_nothing_is_overwritten(es, here, capsys):
    (here / "bars.csv").write_bytes(vendors.databento(es))
    (here / "bars.yaml").write_text("mine")
    refuses(capsys, ["init", "bars.csv"], "bars.yaml: exists", "--out")
    assert (here / "bars.yaml").read_text() == "mine"
    refuses(capsys, ["init", "bars.csv", "--out", "none/bars.yaml"], "no folder none")


@pytest.mark.parametrize(
    ("flags", "part"),
    [
        (["--set", "data.stmap=open"], "'data.stamp'?"),
        (["--market", "ES", "--contract", "SPY"], "give one"),
        (["--contract", "nowhere.yaml"], "contract 'nowhere.yaml': "),
    ],
)
def test_wrong_flags_are_refused(es, here, flags, part, capsys):
    (here / "bars.csv").write_bytes(vendors.databento(es.rows(slice(0, 50))))
    refuses(capsys, ["init", "bars.csv", *flags], part)
    assert list(here.iterdir()) == [here / "bars.csv"]


def test_files_that_cannot_be_read_are_refused(here, capsys):
    refuses(capsys, ["init", "absent.csv"], "absent.csv: no such")
    (here / "page.csv").write_text("<!DOCTYPE html><html>")
    refuses(capsys, ["init", "page.csv"], "looks like an HTML")
    (here / "folder").mkdir()
    refuses(capsys, ["init", "folder"], "zips of LEAN")


def test_a_folder_of_several_symbols_says_how_to_train_on_them(here, capsys):
    folder = here / "my bars"
    folder.mkdir()
    for name in ("eurusd_h1.csv", "USDJPY.csv.gz", "readme.txt"):
        (folder / name).write_text("")
    assert main(["init", "my bars"]) == 2
    said = capsys.readouterr().err
    assert shlex.quote("my bars/eurusd_h1.csv") in said
    words = shlex.split(said.partition("one set: jaxtrade train ")[2].partition(" (docs")[0])
    data = load_config(None, [word for word in words if word != "--set"]).data
    assert (data.source, data.folder, data.markets) == ("file", "my bars", ("EURUSD", "USDJPY"))
    assert list(here.iterdir()) == [folder]


def test_a_fault_in_the_bars_stops_before_anything_is_written(es, here, capsys):
    text = vendors.databento(es).decode().splitlines(keepends=True)
    (here / "bars.csv").write_text("".join([*text[:9], text[8], *text[9:]]))
    refuses(capsys, ["init", "bars.csv"], "a duplicate stamp")
    assert not (here / "bars.yaml").exists()


def test_several_contracts_are_chosen_from(es, here, typed, capsys):
    both = vendors.databento(es) + vendors.databento(es.rows(slice(0, 500)), "ESH4", header=False)
    (here / "bars.csv").write_bytes(both)
    assert main(["init", "bars.csv", "--non-interactive"]) == 2
    said = capsys.readouterr()
    assert not missing(
        said.err, "--set data.expiry=ESZ3", "1  ESZ3  6,826 rows", "2  ESH4  500 rows"
    )
    typed += [""]
    assert main(["init", "bars.csv"]) == 0
    assert_reads(here / "bars.yaml", es)
    assert (
        main(
            [
                "init",
                "bars.csv",
                "--out",
                "roll.yaml",
                "--set",
                "data.expiry=ESH4",
                "--non-interactive",
            ]
        )
        == 0
    )
    assert_reads(here / "roll.yaml", es.rows(slice(0, 500)))


def test_a_folder_of_leans_days_becomes_one_file(es, here, capsys):
    folder = here / "es"
    folder.mkdir()
    for name, content in vendors.lean_days(es, "es", expiry="_201312_20131220").items():
        (folder / f"{name[:8]}_trade.zip").write_bytes(vendors.zipped({name: content}))
    assert main(["init", "es", "--set", "data.time_zone=UTC"]) == 0
    assert not missing(capsys.readouterr().out, "6 daily files of LEAN", "es_days.zip")
    assert_reads(here / "es.yaml", es)
    refuses(capsys, ["data", "check", "es"], "jaxtrade init es")


@pytest.mark.slow
def test_a_unit_of_prices_is_offered_where_it_alone_fits(here, capsys):
    """Points of a hundred thousandth, as some brokers export them."""
    eurusd = load_bundled(EURUSD, start="2013-10-28", end="2014-03-07").sides[0]
    text = vendors.plain(eurusd, "time", lambda at: f"{at:%Y-%m-%dT%H:%MZ}").decode()
    rows = [line.split(",") for line in text.splitlines()]
    scaled = [
        ",".join([row[0], *(str(round(float(price) * 1e5)) for price in row[1:5]), row[5]])
        for row in rows[1:]
    ]
    (here / "eurusd.csv").write_text("\n".join([",".join(rows[0]), *scaled]) + "\n")
    flags = ["--market", "EURUSD", "--set", "data.stamp=open"]
    assert main(["init", "eurusd.csv", *flags]) == 2
    said = capsys.readouterr().err
    assert "1 thing " in said
    assert "--set data.price_scale=1e-05" in said
    assert main(["init", "eurusd.csv", *flags, "--set", "data.price_scale=0.00001"]) == 0
    assert_reads(here / "eurusd.yaml", eurusd)


@pytest.mark.parametrize(
    ("sessions", "given", "split", "control"),
    [
        (63, {}, {"test_sessions": 12}, {}),
        (25, {}, {"test_sessions": 5}, {}),  # as many as the pass probability needs
        (4, {}, {"test_sessions": 1}, {}),
        (63, {"test_sessions": 3}, {"test_sessions": 3}, {}),
        (
            63,
            {"validation_sessions": 6},
            {"test_sessions": 12, "validation_sessions": 6},
            {"evaluate_every": 5, "keep": "best"},
        ),
        (100, {}, None, {}),  # the default protocol chooses, and uses what it holds out
        (
            100,
            {"test_sessions": 3},
            {"validation_sessions": 10, "test_sessions": 3, "embargo_sessions": 1},
            {"evaluate_every": 5, "keep": "best"},
        ),
    ],
)
def test_no_session_is_held_out_that_nothing_uses(sessions, given, split, control):
    values = {"split": given} if given else {}
    hold_out(values, sessions)
    assert values.get("split") == split
    assert values.get("control", {}) == control


def test_nothing_is_held_out_for_an_evaluation_that_is_switched_off():
    values = {"control": {"evaluate_every": 0}}
    hold_out(values, 120)
    assert values["split"]["validation_sessions"] == 0
    assert make_config(values).split.validation_sessions == 0


def test_a_control_of_the_users_own_stays():
    values = {"split": {"validation_sessions": 6}, "control": {"evaluate_every": 2}}
    hold_out(values, 63)
    assert values["control"] == {"evaluate_every": 2, "keep": "best"}


def test_paths_are_seen_from_the_configuration(es, here, monkeypatch):
    """It may be moved with its bars, and read from another folder."""
    (here / "bars").mkdir()
    (here / "bars" / "glbx.csv").write_bytes(vendors.databento(es))
    assert main(["init", "bars/glbx.csv", "--out", "bars/mine.yaml"]) == 0
    assert "file: glbx.csv\n" in (here / "bars" / "mine.yaml").read_text()
    assert load_config("bars/mine.yaml").data.file == "bars/glbx.csv"
    (here / "bars").rename(here / "moved")
    monkeypatch.chdir(here / "moved")
    assert_reads("mine.yaml", es)


def test_choices_that_fit_equally_well_are_all_marked_and_none_is_offered(es, here):
    """In winter, London's clock is UTC."""
    (here / "minutes.txt").write_bytes(vendors.ninjatrader(es))
    seen = examine(here / "minutes.txt", NOTHING)
    zone, stamp = init_questions.answer_questions(seen, ES, load_config(None).data)
    assert (zone.usual, stamp.usual) == ("UTC", "close")
    tied = zone._replace(usual=None, best=("UTC", "Europe/London"))
    marked = [line.split()[1] for line in tied.list_choices() if line.endswith("(best fit)")]
    assert marked == ["UTC", "Europe/London"]
    assert tied.read("2") == tied.choices[1][0]
    # A zone that is clear is offered, although the two sides are close to each other.
    found = [Clock("UTC", "close", 0.0), Clock("UTC", "open", 0.0008), Clock("Mars", "open", 0.1)]
    offered = [init_questions._clock_question(key, seen, ES, found, None) for key in CLOCK]
    assert [each.usual for each in offered] == ["UTC", None]
    with pytest.raises(ConfigError, match="unknown time zone"):
        tied.read("")


# --- guesses ---------------------------------------------------------------------------------------------------------


def test_the_markets_hours_find_the_clock(es, here):
    """A week of 24-hour trading, in UTC with close stamps: no other zone and side fits."""
    (here / "minutes.txt").write_bytes(vendors.ninjatrader(es))
    best = clear_winner(clocks(examine(here / "minutes.txt", NOTHING), ES))
    assert best is not None
    assert (best.time_zone, best.stamp, best.closed) == ("UTC", "close", 0.0)
    assert clear_winner([]) is None


def test_price_steps():
    assert price_step(np.array([1640.25, 1640.75, 1641.25])) == (0.5, 2)
    assert price_step(np.array([1.36543, 1.36548, np.nan])) == (0.00005, 5)
    assert price_step(np.float32([1.36543, 1.36544]).astype(np.float64)) == (0.00001, 5)
    assert price_step(np.array([81121.0, 81203.0])) == (82.0, 0)
    assert price_step(np.array([np.nan])) == (1.0, 0)
