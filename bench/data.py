"""Seconds and memory from a file of ten years of minute bars to a market.

Each repeat is a process of its own. Its clock starts when jaxtrade is imported and JAX has started.
It reads and checks the file, computes sessions and features, and puts the market on the device, as
a command does. Stamps are text. Memory is the greatest that is resident, of the whole process with
its libraries.
"""

import statistics
import tempfile
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from jaxtrade.data.contracts import get_contract
from jaxtrade.data.market import load_market
from jaxtrade.data.synthetic import synthetic_bars

from . import harness, setting
from .worker import Worker

SESSIONS = 2_480  # 3.4 million bars
# NQ, without its price range of each year: a synthetic price leaves it in ten years.
CONTRACT = """symbol: BENCH
kind: future
currency: USD
tick_size: 0.25
tick_value: 5.0
commission: 2.08
slippage: 1
min_stop_ticks: 20
calendar: cme_equity
"""


def written(folder, sessions):
    """Write synthetic bars of NQ as a vendor's file has them -> (format -> file, bars).

    Stamps are text (UTC), prices in points. The contract is beside the files.
    """
    bars = synthetic_bars(get_contract("NQ"), sessions)
    stamps = np.datetime_as_string(bars.time.astype("datetime64[s]"))
    columns = {"time": np.char.replace(stamps, "T", " ").astype(object)}
    for name in ("open", "high", "low", "close"):
        columns[name] = getattr(bars, name) * float(bars.contract.tick_size)
    frame = pd.DataFrame(columns | {"volume": bars.volume.astype(np.int64)})
    (folder / "contract.yaml").write_text(CONTRACT, encoding="ascii")
    files = {kind: folder / f"bars.{kind}" for kind in ("csv", "parquet")}
    frame.to_csv(files["csv"], index=False)
    frame.to_parquet(files["parquet"])
    return files, len(frame)


def config_of(file):
    """Return the shared configuration with bars of a file."""
    keys = {"file": str(file), "contract": str(file.with_name("contract.yaml"))}
    return setting.config(data=keys | {"source": "file", "stamp": "open", "time_zone": "UTC"})


def loader(file):
    """In a child: load the market of a file, as a command does -> its bars."""
    config = config_of(Path(file))
    jax.devices()  # starts JAX
    yield 0
    market = load_market(config)
    jax.block_until_ready(market.data)
    yield len(market.bars)


def once(file):
    """Load a market in a fresh process."""
    with Worker("data", "loader", {"file": str(file)}) as worker:
        return worker.run()


def run(options):
    sessions = 20 if options.quick else SESSIONS
    with tempfile.TemporaryDirectory() as name:
        files, bars = written(Path(name), sessions)
        work = {kind: partial(once, file) for kind, file in files.items()}
        taken = harness.take_turns(work, options.repeats)
        size = {kind: file.stat().st_size for kind, file in files.items()}
    config = {"sessions": sessions, "bars": bars, "file_bytes": size, "repeats": options.repeats}
    seconds, bytes_ = {}, {}
    for kind, replies in taken.items():
        samples, peaks, _ = zip(*replies, strict=True)
        seconds[kind] = harness.durations(samples)
        bytes_[kind] = statistics.median(peaks)
    return {"config": config, "to_market": seconds, "peak_resident_bytes": bytes_}
