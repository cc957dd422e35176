"""The advisor of a configuration: what followed, which backend is asked, and what is written of
it.
"""

import json
import time
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from jaxtrade.advisor.compose import (
    ask_all,
    ask_service,
    backend_of,
    config_digest,
    journal_header,
    service_of,
    service_options,
    session_places,
)
from jaxtrade.advisor.host.journal import HEADER, Journal
from jaxtrade.advisor.host.mocks import Shifted
from jaxtrade.advisor.host.openai import OpenAIBackend
from jaxtrade.advisor.host.prompts import TEMPLATES
from jaxtrade.advisor.host.registry import is_slow
from jaxtrade.advisor.host.types import SCHEMA_HASH, Failure
from jaxtrade.advisor.questions import followed_of, make_book, round_turn
from jaxtrade.errors import ConfigError
from jaxtrade.types import TickValue
from tests.advisor.asking import recorded_line
from tests.advisor.markets import EURUSD, book, config, market
from tests.advisor.servers import GOOD
from tests.messages import missing

URL = "http://127.0.0.1:8080/v1"


def chosen_and_made(kind, *overrides, **options):
    chosen = config(*overrides, kind=kind, **options)
    return chosen, backend_of(chosen, market(), book(), followed(), None)


def made(*given, **options):
    return chosen_and_made(*given, **options)[1]


def followed():
    return followed_of(market(), config())


# --- what followed ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_round_turn_by_hand():
    """ES: $2.08 a side is $4.16, more than one tick of $12.50's third, hence 1 tick, and 1 tick of
    slippage a side. EURUSD over two sides: $3 a side at $1 a tick, no slippage beside the
    spread."""
    assert round_turn(market(), config()) == 1 + 2
    assert round_turn(market(), config("costs.commission=6.25", "costs.slippage=0")) == 1
    assert round_turn(market(), config("costs.commission=6.251", "costs.slippage=0")) == 2
    assert round_turn(market(), config("costs.commission=0", "costs.slippage=3")) == 6
    assert round_turn(market(*EURUSD), config(*EURUSD)) == 6


def test_a_round_turn_of_a_market_whose_profits_are_converted():
    """At 2/3 of a dollar a tick in the first bar, $4.16 are 6.24 ticks: 7, whatever later bars
    say.
    """
    value = TickValue(jnp.array([2000, 1]), jnp.array([3, 1]))
    converted = replace(
        market(),
        contract=replace(market().contract, currency="EUR"),
        data=market().data.replace(tick_value=value),
    )
    assert round_turn(converted, config()) == 7 + 2


def test_what_followed_pays_the_spread():
    """Of two-sided bars a rise must carry a buy at the ask to a sale at the bid, and the other way
    round.
    """
    chosen, two = config(*EURUSD, "advisor.horizon=3"), market(*EURUSD)
    found, bars = followed_of(two, chosen), two.bars
    assert bars.ask is not None
    first, last = (
        int(np.asarray(edge)[0]) for edge in (two.data.sessions.first, two.data.sessions.last)
    )
    for bar in range(first, last - 1):
        bought = int(bars.close[bar + 3]) - int(bars.ask.open[bar + 1])
        sold = int(bars.open[bar + 1]) - int(bars.ask.close[bar + 3])
        assert found[bar] == (bought > 6) - (sold > 6)
    one_sided = np.sign(np.asarray(found, int)).astype(bool).sum()
    without = followed_of(replace(two, bars=replace(bars, ask=None)), chosen)
    assert (without != 0).sum() > one_sided > 0


# --- which backend is asked -------------------------------------------------------------------------------------------


def test_the_rules_see_the_other_bar_s_values_and_no_bar_without_them():
    """Delayed rules at bar b are the rules at b - 5; where that bar lies in the warm-up there is
    nothing.
    """
    bars = np.arange(1300, 1360)
    plain = ask_all(made("rules"), book(), bars - 5)
    late = ask_all(made("mock:delayed:5/rules"), book(), bars)
    np.testing.assert_array_equal(plain[1], late[1])
    assert len(np.unique(plain[1], axis=0)) > 1
    early = int(np.flatnonzero(book().askable)[0])
    first_known = next(bar for bar in range(early) if book().question_or_none(bar))
    for delay in (early - first_known + 1, 90000):
        answer = made(f"mock:delayed:{delay}/rules").answer(book().question(early), 0.0)
        assert (answer.advice, answer.failure) == (None, Failure.EMPTY)


@pytest.mark.slow
def test_the_placebo_moves_whole_sessions():
    """The rules' answers at the same minute of another session; where the warm-up has none there,
    the nearest bar's.
    """
    asked = np.flatnonzero(book().askable)
    backend = made("mock:shifted/rules")
    assert isinstance(backend, Shifted)
    found = session_places(book(), market().data.sessions)
    assert backend.sessions == tuple(filter(None, map(tuple, found)))
    place = {bar: place for day in backend.sessions for bar, place in day}
    same = [place[bar] == place[backend.other(bar)] for bar in asked.tolist()]
    assert np.mean(same) > 0.75  # all but those that a warm-up leaves without a counterpart


def test_seed_and_horizon_are_the_run_s_unless_given():
    """The run's seed shuffles a wrapped server's answers; it does not reach the server, whose
    answers it would keep from the cache.
    """

    def shown(*names, **given):
        identity = made(*given.pop("of"), **given).identity()
        return [identity[name] for name in names]

    own = ("seed=7", "advisor.horizon=12")
    assert shown("seed", "horizon", of=("mock:random", *own)) == ["7", "12"]
    assert shown("seed", "horizon", of=("mock:random", *own), seed=9, horizon=3) == ["9", "3"]
    placebo = ("mock:shifted/mock:random", *own)
    names = ("seed", "least", "of.seed", "of.horizon")
    assert shown(*names, of=placebo, horizon=3) == ["7", "12", "7", "3"]
    served = ("mock:permuted/" + URL, "seed=7")
    assert shown("seed", "of.seed", "of.model", of=served, model="m") == ["7", "None", "m"]


def server_options(backend):
    assert isinstance(backend, OpenAIBackend)
    return backend._options


def test_a_server_is_asked_for_what_the_caps_count_on():
    options = server_options(made(URL, "advisor.service.completion_tokens=90", model="m"))
    assert (options.max_tokens, options.answer, options.seed, options.base_url) == (
        90,
        "json",
        None,
        URL,
    )
    chosen = config("advisor.template=pipe", kind=URL, model="m")
    piped = backend_of(chosen, market(), make_book(market(), chosen), followed(), None)
    assert server_options(piped).answer == "pipe"
    with pytest.raises(ConfigError, match=r"900.*completion_tokens = 256"):
        made(URL, model="m", max_tokens=900)


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("off", {}, "off"),
        ("table:a.npz", {}, "table:a.npz"),
        ("replay:a.jsonl", {}, "replay:a.jsonl"),
        ("mock:permuted", {"inner": "rules"}, "mock:permuted/rules"),
        ("mock:turning/rules", {"turn": 5, "then": URL}, "'?then'?"),
        ("mock:permuted", {}, "'inner'"),
    ],
)
def test_kinds_that_cannot_be(kind, options, words):
    with pytest.raises(ConfigError, match=words):
        made(kind, **options)


def test_the_rules_need_volume():
    for kind in ("rules", "mock:permuted/rules"):
        with pytest.raises(ConfigError, match="EURUSD have no volume"):
            backend_of(
                config(*EURUSD, kind=kind),
                market(*EURUSD),
                book(*EURUSD),
                np.zeros(len(book(*EURUSD).askable), np.int8),
                None,
            )


def test_recorded_answers_tell_how_many_bars_they_cover(tmp_path):
    path, bars = tmp_path / "r.jsonl", np.flatnonzero(book().askable)
    lines = [recorded_line(book().question(int(bar)), json.dumps(GOOD)) for bar in bars[:3]]
    path.write_text("\n".join(lines) + "\n")
    said = []
    chosen = config(kind=f"recorded:{path}")
    backend = backend_of(chosen, market(), book(), followed(), said.append)
    found, rows = ask_all(backend, book(), bars[:5], said.append)
    assert found.tolist() == bars[:3].tolist()
    np.testing.assert_allclose(rows[0], [0.0, 2.1, 0.0, 0.7, 0.2, 30.0], rtol=1e-6)
    covered, asked = said
    assert not missing(covered, f"recorded:{path}", "3 of 2165")
    assert not missing(asked, "advisor recorded", "2 bars (2 empty)")


@pytest.mark.parametrize(
    ("kind", "slow"),
    [
        ("rules", False),
        ("mock:skilled:0.6", False),
        ("recorded:a/b.jsonl", False),
        (URL, True),
        ("https://h/v1", True),
        ("mock:permuted/rules", False),
        ("mock:available:0.5/" + URL, True),
        ("mock:slow:0.1/mock:random", True),
        ("mock:permuted/mock:slow:1/mock:random", True),
        ("mock:delayed:5/recorded:a/b", False),
    ],
)
def test_what_takes_time(kind, slow):
    assert is_slow(kind) is slow


# --- asking ----------------------------------------------------------------------------------------------------------


def test_through_the_service_comes_the_same():
    kind, bars = "mock:available:0.5/mock:random", np.flatnonzero(book().askable)[:300]
    chosen, backend = chosen_and_made(kind, "advisor.service.queue_size=64")
    direct = ask_all(backend, book(), bars)
    seen = []
    with service_of(chosen, backend) as service:
        *found, counts = ask_service(service, book(), bars, progress=seen.append)
    for mine, theirs in zip(found, direct, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    advised = len(found[0])
    assert 100 < advised < 200
    names = ("done", "failed", "dropped", "expired")
    assert [counts[name] for name in names] == [advised, 300 - advised, 0, 0]
    assert (seen[-1].settled, seen[-1].total, seen[-1].advised) == (300, 300, advised)


def test_a_wait_is_bounded():
    chosen, backend = chosen_and_made("mock:slow:30/mock:random", "advisor.service.deadline_s=60.0")
    with service_of(chosen, backend) as service:
        found, rows, statistics = ask_service(
            service, book(), np.flatnonzero(book().askable)[:20], wait_s=0.3
        )
    assert (found.shape, rows.shape) == ((0,), (0, 6))
    assert statistics["in_flight"] + statistics["queued"] == 20


@pytest.mark.parametrize(("failure", "waits"), [("connection", False), ("timeout", True)])
def test_who_is_not_there_is_not_waited_for(failure, waits, monkeypatch):
    """The breaker opens before anything was answered. A refused connection ends the asking at once;
    a time-out may be a model that is still loading, so it ends when patience does. Neither asks
    about the rest."""
    patience = 2.0 if waits else 60.0
    monkeypatch.setattr("jaxtrade.advisor.compose._PATIENCE_S", patience)
    key = "advisor.service.breaker_failures=3"
    chosen, backend = chosen_and_made("mock:failing", key, failure=failure)
    with service_of(chosen, backend, log=lambda _: None) as service:
        began = time.monotonic()
        found, _, statistics = ask_service(service, book(), np.flatnonzero(book().askable)[:200])
        took = time.monotonic() - began
    assert len(found) == 0
    assert statistics["breaker"] == "open"
    assert statistics["asked"] < 20
    assert statistics["queued"] > 150
    assert (took >= patience) == waits


def test_advice_that_cannot_be_is_absent(monkeypatch):
    backend, said = made("mock:constant"), []
    good = backend.answer(book().question(1300), 0.0)
    wrong = good._replace(advice=good.advice._replace(confidence=float("nan")))
    monkeypatch.setattr(backend, "answer", lambda *_: wrong)
    assert len(ask_all(backend, book(), [1300, 1301], said.append)[0]) == 0
    [line] = said
    assert not missing(line, f"advisor {backend.name}", "2 bars (2 schema)")


# --- services and what is written ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "keys", "files"),
    [
        ("mock:random", (), ("", "")),
        (URL, (), ("c", "")),
        ("mock:permuted/" + URL, (), ("c", "")),
        ("mock:random", ("max_calls=5",), ("", "l")),
        ("mock:random", ("max_tokens=5",), ("", "l")),
        (URL, ("max_cost=0.0", "price_prompt=1.0", "price_completion=1.0"), ("c", "l")),
        (URL, ("cache=mine", "ledger=own", "max_calls=5"), ("mine", "own")),
    ],
)
def test_where_a_service_keeps_its_files(kind, keys, files):
    chosen = config(*(f"advisor.service.{key}" for key in keys), kind=kind)
    options = service_options(chosen.advisor, "c", "l")
    assert (options.cache or "", options.ledger or "") == files


def test_the_digest_leaves_out_what_a_replay_differs_in():
    same = config_digest(config())
    for other in (
        config(kind="mock:random"),
        config(kind=URL, model="m"),
        config("train.tensorboard=false"),
        config("advisor.service.workers=3"),
    ):
        assert config_digest(other) == same
        assert other.digest() != config().digest()
    for change in (
        "seed=1",
        "advisor.transport=callback",
        "advisor.horizon=29",
        "advisor.template=pipe",
        "train.chunk_updates=6",
        "ppo.gamma=0.9",
    ):
        assert config_digest(config(change)) != same


# The keys whose defaults have changed since, as an earlier run's config.yaml holds them, or is
# read.
EARLIER = ("advisor.abstain=2.0", "advisor.evidence=answers", "train.total_timesteps=1000000")


@pytest.mark.parametrize(
    ("overrides", "digest"),
    [
        ((), "f4279c039def0e91256b1fada9fcf990294f37e8a744b55de8ef3e09a4d56c34"),
        (
            ("advisor.template=pipe", "advisor.fusion=rules"),
            "8f777d309b992d164defe619724bc0ac0d6019fca1a1f8dec7af16906bff7d20",
        ),
    ],
)
def test_the_digest_of_a_run_without_context_is_that_of_earlier_versions(overrides, digest):
    """Both were computed before `advisor.context` was there: journals of that time stay
    readable.
    """
    assert config_digest(config(*EARLIER, *overrides)) == digest


def test_the_digest_holds_files_by_content(tmp_path):
    def digest(folder, text):
        (tmp_path / folder).mkdir(exist_ok=True)
        news, template = tmp_path / folder / "news.jsonl", tmp_path / folder / "own.txt"
        news.write_text(
            json.dumps({"time": "2013-10-07T09:00:00-04:00", "source": "wire", "text": text})
        )
        template.write_text(f"{text} {{close}} {{news}} {{answer_format}}")
        return config_digest(config(f"advisor.context.news={news}", f"advisor.template={template}"))

    assert digest("a", "one") == digest("b", "one")
    assert digest("a", "two") != digest("b", "one")
    assert config_digest(config("advisor.context.bars=3")) != config_digest(config())


def test_the_header_of_a_journal(tmp_path):
    identity = made("mock:skilled:0.6").identity()
    header = journal_header(config(kind="none"), book(), identity, run="r1")
    assert set(header) == set(HEADER)
    assert (header["run"], header["identity"]["q"]) == ("r1", "0.6")
    assert (header["prompt_version"], header["schema"]) == (TEMPLATES["v1"].version, SCHEMA_HASH)
    Journal.create(tmp_path / "j.jsonl", header).close()
    unnamed = [journal_header(config(kind="none"), book(), {})["run"] for _ in range(2)]
    assert unnamed[0] != unnamed[1]
