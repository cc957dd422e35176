"""What a policy sees on a stream is what it sees in an evaluation, and `decide` says what it does."""

import functools
import io
import json
from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest

import jaxtrade
from jaxtrade.cli import main
from jaxtrade.config import make_config
from jaxtrade.data.market import build_market
from jaxtrade.data.sources import bars_of, write_bars
from jaxtrade.data.splits import session_set
from jaxtrade.env.params import make_env, make_params
from jaxtrade.errors import DataError
from jaxtrade.evaluation.backtest import backtest
from jaxtrade.evaluation.baselines import random_masked
from jaxtrade.evaluation.loaded_policy import LoadedPolicy
from jaxtrade.evaluation.policy import policy_digest
from jaxtrade.evaluation.record import decision_bars, without_rules
from jaxtrade.runs.decide import choose_policy, decide_bars, decide_line
from jaxtrade.stream import Stream, live
from jaxtrade.stream.live import FLAT, ReportedPosition
from tests.messages import refused, refuses
from tests.reading import OLD


def compiled(function: Any) -> int:
    return function._cache_size()


@functools.cache
def world(task, **data):
    """Configuration, bars, whole market, environment and parameters of its last session."""
    config = make_config({"data": data, "env": {"task": task}})
    bars = bars_of(config)
    market = build_market(bars, config)
    last = np.array([market.num_sessions - 1])
    sessions = session_set(last, market.num_sessions)
    return config, bars, market, make_env(config), make_params(market, sessions, config)


@functools.cache
def record_of(task, **data):
    """What random legal actions do in the last session, and what they see."""
    *_, market, env, params = world(task, **data)
    decisions = decision_bars(market.data, params.sessions)
    chosen = random_masked(env)
    record = backtest(env, chosen, params, decisions, "strategy", jax.random.key(3))
    return record, np.asarray(jax.jit(jax.vmap(env.observe, (0, None)))(record.ref, params))


@pytest.mark.slow
@pytest.mark.parametrize("task", ["manage", "advised"])
def test_a_session_of_an_evaluation_is_seen_alike(task):
    """Position, trade record and account go on in `step`; a broker's report of the same position
    shows the same. Every program is compiled once."""
    config, bars, _, env, _ = world(task)
    record, observations = record_of(task)
    first = int(record.row[0])
    stream = Stream(config, bars.rows(slice(0, first)))
    unlimited = without_rules(stream.params.account)  # as in this pass, which no account ends
    stream.params = stream.params.replace(account=unlimited)
    row, state, sizes = stream.push(bars.rows(slice(first, first + 1))), None, None
    seen = stream.see()
    for i, at in enumerate(record.row.tolist()):
        assert row.decides
        assert np.array_equal(seen.mask, record.ref.mask[i]), at
        assert seen.observation.tobytes() == observations[i].tobytes(), at
        order, _ = live._order(env, stream.params, seen.state, np.int32(record.action[i]))
        row = stream.push(bars.rows(slice(at + 1, at + 2)))
        state, event = stream.step(seen.state, order)
        assert int(event.exit_price) == record.event.exit_price[i]
        assert int(state.account.equity) == record.equity[i], at
        seen = stream.see_state(state)
        held, account = state.position, state.account
        report = ReportedPosition(
            *map(int, (held.quantity, held.entry, held.stop, held.target, held.trailing)),
            bars=int(state.row - held.opened + 1),
            equity=int(account.equity),
            high_water=int(account.high_water),
        )
        told = stream.see(report)
        assert np.array_equal(told.mask, seen.mask)
        if task == "manage":
            assert told.observation.tobytes() == seen.observation.tobytes()
        count = [compiled(each) for each in (live._state, live._look, live._step, live._order)]
        sizes = sizes or count
        assert count == sizes
    assert row.flat
    assert not row.decides


def test_nothing_is_compiled_for_a_new_day():
    config = make_config({"data": {"market": "GBPUSD", "start": "2018-06-01"}})
    bars = bars_of(config)
    end = len(bars) - 24 * 5
    stream, sizes = Stream(config, bars.rows(slice(0, end))), None
    for at in range(end, len(bars)):
        stream.push(bars.rows(slice(at, at + 1)))
        stream.see(
            ReportedPosition(1, int(bars.close[at]), equity=at) if at % 2 else ReportedPosition()
        )
        sizes = sizes or compiled(live._state)
        assert compiled(live._state) == sizes
    assert len(np.unique(bars.trade_dates[end:])) >= 5


def test_an_account_at_its_floor_may_not_open():
    """The reference account of $50,000 has a drawdown of $2,500 from its highest equity."""
    config, bars, _, env, params = world("manage")
    first = int(params.market.sessions.first[-1])
    stream = Stream(config, bars.rows(slice(0, first)))
    stream.push(bars.rows(slice(first, first + 1)))
    buy, drawdown = env.actions.index("BUY"), int(params.account.drawdown)
    assert stream.see(ReportedPosition(equity=1 - drawdown, high_water=0)).mask[buy]
    assert not stream.see(ReportedPosition(equity=-drawdown, high_water=0)).mask[buy]


def test_what_cannot_be_streamed_is_refused():
    config, bars, *_ = world("manage")
    with refused("124 bars of history", kind=DataError):
        Stream(config, bars.rows(slice(0, 100)))
    with refused("no bar", kind=DataError):
        Stream(config, bars.rows(slice(0, 0)))
    with refused("allocate"):
        Stream(
            make_config({"env": {"task": "allocate"}, "data": {"markets": ["EURUSD", "GBPUSD"]}}),
            bars,
        )


# --- the command


def line_of(bars, at, **others):
    points = {n: float(getattr(bars, n)[at]) / 4 for n in ("open", "high", "low", "close")}
    return {"time": int(bars.time[at]), "volume": bars.volume[at], **points, **others}


@pytest.fixture(scope="module")
def opened():
    """The run of `OLD` on its own bars but the last 300; and all of them."""
    bars = bars_of(make_config({}))
    return jaxtrade.open_stream(OLD, bars.rows(slice(0, len(bars) - 300))), bars


def test_a_decision_has_what_a_broker_needs(opened):
    stream, bars = opened
    at = len(bars) - 300
    flat = decide_line(stream, json.dumps(line_of(bars, at)))
    policy = json.loads((OLD / "policy" / "schema.json").read_text())
    assert flat["state"] == "decision"
    assert flat["closes"] > flat["time"]
    assert flat["close"] == bars.close[at] / 4
    assert {key: flat[key] for key in ("observation_sha256", "actions_sha256")}.items() <= (
        policy.items()
    )
    assert flat["policy_sha256"] == policy_digest(jaxtrade.load_policy(OLD).policy)
    assert list(flat["mask"]) == list(flat["probabilities"]) == policy["actions"]["names"]
    assert (flat["mask"]["BUY"], flat["mask"]["CLOSE"]) == (True, False)
    assert sum(flat["probabilities"].values()) == pytest.approx(1, abs=1e-6)
    assert max(flat["probabilities"], key=flat["probabilities"].get) == flat["action"]
    if side := {"BUY": 1, "SELL": -1}.get(flat["action"]):
        assert flat["order"] == {"side": flat["action"].lower(), "quantity": 1}
        assert side * (flat["close"] - flat["stop"]) > 0 > side * (flat["close"] - flat["target"])

    close = bars.close[at + 1] / 4
    held = {"side": "long", "entry": close - 10, "stop": close - 20, "target": close + 30}
    account = {"position": held | {"bars": 5}, "equity": 50_500, "high_water": 50_600}
    found = decide_line(stream, json.dumps(line_of(bars, at + 1, **account)))
    assert (found["mask"]["BUY"], found["mask"]["CLOSE"]) == (False, True)
    assert found["mask"]["MOVE_STOP_TO_BREAKEVEN"]
    closed = {"side": "sell", "quantity": 1}, None, None
    kept, moved = (None, close - 20, close + 30), (None, close - 10 + 0.25, close + 30)
    expected = {"CLOSE": closed, "MOVE_STOP_TO_BREAKEVEN": moved}.get(found["action"], kept)
    assert (found["order"], found["stop"], found["target"]) == expected


def test_levels_are_those_after_the_order():
    """In ticks, at this close: of a new bracket, of one that is moved, and none after a close."""
    config, bars, _, env, _ = world("manage")
    stream = Stream(config, bars.rows(slice(0, 3000)))
    close = int(bars.close[2999])
    holding = ReportedPosition(1, close - 40, stop=close - 80, target=close + 120)

    def levels(name, holding=holding):
        state = stream.see(holding).state
        found = live._order(env, stream.params, state, np.int32(env.actions.index(name)))
        return found[0], *map(int, found[1])

    assert levels("HOLD")[1:] == (close - 80, close + 120)
    assert levels("MOVE_STOP_TO_BREAKEVEN")[1:] == (close - 39, close + 120)
    assert levels("CLOSE")[1:] == (0, 0)
    order, stop, target = levels("SELL", ReportedPosition())
    assert (stop, target) == (close + int(order.stop_ticks), close - int(order.target_ticks))
    assert stop > close > target


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ({"time": "2013-10-11 10:00"}, ("time", "2013-10-11 10:00")),
        ({"close": "x"}, ("close", "'x'")),
        ({"high": 1600.1}, ("high", "1600.1", "0.25")),
        ({"low": 1.0, "high": 2.0}, ("low and high",)),
        ({"volume": -1}, ("volume", "-1")),
        ({"volume": None}, ("volume: missing",)),
        ({"close": None}, ("close: missing",)),
        ({"positon": {"side": "short", "entry": 1690}}, ("positon", "'position'")),
        ({"volume": "NaN"}, ("volume", "NaN")),
        ({"volume": 1e308}, ("volume", "E+308")),
        ({"close": "1e999999999"}, ("close", "1e999999999")),  # as a whole number it fills memory
        ({"time": 10**30}, ("time", str(10**30))),
        ({"position": {"side": "up", "entry": 1}}, ("position.side", "long", "short")),
        ({"position": {"side": "long", "entry": 1690, "stp": 1}}, ("stp", "stop")),
        ({"position": {"side": "long", "entry": 1690, "bars": 0}}, ("position.bars", "0")),
        ({"equity": "much"}, ("equity", "much")),
        ({"equity": "1e999999999"}, ("equity", "1e999999999")),
        ({"time": 0}, ("1970",)),
        ({"time": "2013-10-12T13:05:00Z"}, ("no session on 2013-10-12",)),
    ],
)
def test_a_faulty_line_is_refused_and_changes_nothing(opened, change, facts):
    stream, bars = opened
    at = int(np.searchsorted(bars.time, stream.rows.bar.time[0])) + 1
    before = stream.rows.bar.time
    with refused(*facts, kind=DataError):
        decide_line(stream, json.dumps(line_of(bars, at) | change))
    assert stream.rows.bar.time == before
    decide_line(stream, json.dumps(line_of(bars, at)))


def test_lines_come_in_and_go_out(monkeypatch, capsys):
    """A bad line and an old bar are answered and counted, and the next bar is decided on."""
    bars = bars_of(make_config({}))
    monday = json.dumps(line_of(bars, len(bars) - 1, time="2013-10-14T10:00:00-04:00"))
    later = monday.replace("10:00:00-04:00", "14:01:00Z")
    lines = "\n".join([monday, "[" * 9999, monday, "\udcff", later]).encode(
        errors="surrogateescape"
    )
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines)))
    assert main(["decide", str(OLD), "--bars", "-"]) == 2
    out, err = capsys.readouterr()
    first, bad, old, bytes_, last = map(json.loads, out.splitlines())
    assert first["time"] == "2013-10-14T14:00:00Z"
    assert first["state"] == last["state"] == "decision"
    assert [each["line"] for each in (bad, old, bytes_)] == [2, 3, 4]
    assert "line 2" in err
    assert "line 3" in err


def test_the_last_bars_of_a_file(tmp_path, capsys):
    """A file in the middle of the last session, and a position at its last bar."""
    bars = bars_of(make_config({}))
    path = write_bars(bars.rows(slice(0, len(bars) - 300)), tmp_path)
    asked = ["decide", str(OLD), "--bars", str(path), "--set", "data.stamp=open"]
    assert main([*asked, "--last", "2"]) == 0
    before, flat = map(json.loads, capsys.readouterr().out.splitlines())
    assert before["closes"] == flat["time"]
    entry = str(flat["close"] - 1)
    assert main([*asked, "--position", f"long@{entry}", "--stop", str(flat["close"] - 5)]) == 0
    held = json.loads(capsys.readouterr().out)
    assert held["time"] == flat["time"]
    assert held["mask"]["CLOSE"]
    assert flat["mask"]["BUY"]


def test_a_position_at_the_flat_bar_is_closed():
    """Its order is to leave; without one every key is there, and null."""
    _, bars, market, *_ = world("manage")
    config, policy = choose_policy(OLD, None, None, None)
    flat = bars.rows(slice(0, int(market.data.sessions.last[-1]) + 2))  # one after the last step
    report = {"position": {"side": "short", "entry": 1690, "quantity": 1}}
    [held] = decide_bars(config, policy, flat, 1, report)
    [nothing] = decide_bars(config, policy, flat)
    assert held["state"] == nothing["state"] == "flat"
    assert held["order"] == {"side": "buy", "quantity": 1}
    for key in ("action", "order", "stop", "target", "mask", "probabilities"):
        assert nothing[key] is None


def test_history_without_volume_is_refused_for_a_policy_that_sees_it():
    _, bars, *_ = world("manage")
    config, policy = choose_policy(OLD, None, None, None)
    with refused("volume", bars.source, kind=DataError):
        Stream(config, replace(bars, volume=np.zeros(len(bars))), policy)


def test_a_memory_sees_the_report_at_the_last_bar_alone(monkeypatch):
    _, bars, market, *_ = world("manage")
    end = int(market.data.sessions.first[-1]) + 5
    held, decide = list[ReportedPosition](), Stream.decide

    def listen(stream, holding):
        held.append(holding)
        return decide(stream, holding)

    monkeypatch.setattr(LoadedPolicy, "has_memory", True)
    monkeypatch.setattr(Stream, "decide", listen)
    config, policy = choose_policy(OLD, None, None, None)
    report = {"position": {"side": "long", "entry": 1690}}
    assert len(list(decide_bars(config, policy, bars.rows(slice(0, end)), 1, report))) == 1
    assert held == [FLAT] * 4 + [ReportedPosition(1, 6760)]


def test_a_file_with_one_bar_too_few_is_refused():
    """The history takes bars until one more can be decided on."""
    _, bars, market, *_ = world("manage")
    config, policy = choose_policy(OLD, None, None, None)
    history = int(market.data.sessions.first[0]) + 2
    for count in (history - 1, history):
        with refused(bars.source, kind=DataError):
            list(decide_bars(config, policy, bars.rows(slice(0, count))))
    assert len(list(decide_bars(config, policy, bars.rows(slice(0, history + 1))))) == 1


@pytest.mark.parametrize(
    ("flags", "facts"),
    [
        (["--position", "up@3"], ("--position up@3", "long@PRICE")),
        (["--stop", "3"], ("--stop", "--position")),
        (["--position", "long@3", "--last", "2"], ("--last",)),
        (["--last", "2", "--all"], ("--last", "--all")),
        (["--bars", "-", "--last", "2"], ("--last", "--bars -")),
        (["--history", "x.csv"], ("--history", "--bars -")),
        (["--bars", "none.csv"], ("none.csv",)),
        (["--symbol", "NQ"], ("NQ", "ES")),
    ],
)
def test_flags_that_do_not_fit_are_refused(capsys, flags, facts):
    refuses(capsys, ["decide", str(OLD), *flags], *facts)
