"""Questions and bounded asking, shared by the tests of backends."""

import json
import time

from jaxtrade.advisor.host.prompts import make_question

SLOTS = {
    "close": 5123.25,
    "atr": 6.0,
    "adx": 42.0,
    "plus_di": 31.0,
    "minus_di": 12.5,
    "rsi": 60.0,
    "roc": 0.001,
    "price_to_vwap": 0.0005,
}

# Seconds in which something that must not wait is over on any machine, however busy. What it must
# not wait for lasts longer: the hangs of these tests take 20 s, 60 s or for ever. The limits
# themselves are constants of the code.
SOON = 15.0

BASE = make_question(0, "ES", "2024-03-01T10:31:00-05:00", SLOTS)


def question(bar=0):
    """The same question about any bar."""
    return BASE._replace(bar=bar)


def ask(backend, seconds=5.0, bar=0):
    """One answer; it never takes longer than its deadline by more than 10 % and `SOON`."""
    began = time.monotonic()
    answer = backend.answer(question(bar), began + seconds)
    elapsed = time.monotonic() - began
    assert elapsed <= 1.1 * seconds + SOON
    assert (answer.advice is None) == (answer.failure is not None)
    return answer


def recorded_line(asked, raw, model=""):
    """One JSONL line that `read_recorded` accepts, without its end of line."""
    return json.dumps(
        {"bar": asked.bar, "time": asked.time, "symbol": asked.symbol, "raw": raw, "model": model}
    )
