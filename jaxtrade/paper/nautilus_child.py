"""NautilusTrader's simulated exchange in a process of its own: a bar a line in, its fills out.

Run as a file by `jaxtrade.paper.nautilus`, it imports nothing of jaxtrade. Prices are whole ticks. A
bar is shown as quotes: its open, and every tick from there to one extreme, to the other and to the
close. So stops and targets are met at their levels.
"""

import json
import sys
from itertools import pairwise
from typing import Any

import nautilus_trader.backtest as b  # pyright: ignore[reportMissingImports]
import nautilus_trader.execution as x  # pyright: ignore[reportMissingImports]
import nautilus_trader.model as m  # pyright: ignore[reportMissingImports]
from nautilus_trader.common import LoggerConfig  # pyright: ignore[reportMissingImports]
from nautilus_trader.trading import Strategy  # pyright: ignore[reportMissingImports]

ID, DOLLARS = m.InstrumentId.from_str("X.SIM"), m.Currency.from_str("USD")
ONE, DEEP = m.Quantity.from_int(1), m.Quantity.from_int(1_000_000)
BUY, SELL = m.OrderSide.BUY, m.OrderSide.SELL


class Slipped(x.FillModel):
    """Market and stop orders fill a number of ticks beyond the market, and a limit at itself."""

    def __init__(self, ticks):
        self.ticks = ticks

    def get_orderbook_for_fill_simulation(
        self, instrument, order, best_bid: Any = 0, best_ask: Any = 0
    ):
        """Return the book that an order meets; None: that of the market."""
        if order.order_type == m.OrderType.LIMIT:
            return None
        book = m.OrderBook(ID, m.BookType.L2_MBP)
        for side, best, worse in ((BUY, best_bid, -self.ticks), (SELL, best_ask, self.ticks)):
            book.add(m.BookOrder(side, price(int(best) + worse), DEEP, 1), 0, 0, 0)
        return book

    def is_limit_filled(self):
        """Return True: a touch fills."""
        return True


class Trader(Strategy):
    """Does what it is told at the next quote, and places the bracket as its entry is filled."""

    held, slippage = 0, 0
    stop: Any = None
    bracket: Any = None
    todo: Any = ()
    fills: Any = ()

    def on_start(self):
        """Listen."""
        self.subscribe_quotes(ID)

    def on_quote(self, quote):
        """Do what is due."""
        todo, self.todo = self.todo, ()
        for act, *given in todo:
            act(*given)

    def send(self, quantity, kind="market", *level):
        """Send an order, and return it."""
        size = BUY if quantity > 0 else SELL, m.Quantity.from_int(abs(quantity))
        order = getattr(self.order_factory, kind)(ID, *size, *map(price, level))
        self.submit_order(order)
        return order

    def protect(self, *levels):
        """Put the stop at the level that is met first."""
        if self.stop:
            self.cancel_order(self.stop.client_order_id)
        known = [level for level in levels if level is not None]
        level = (max if self.held > 0 else min)(known, default=None)
        self.stop = None if level is None else self.send(-self.held, "stop_market", level)

    def on_order_filled(self, event):
        """Note a fill. Stop and target cancel each other."""
        sign = 1 if event.order_side == BUY else -1
        quantity, paid = sign * int(event.last_qty), int(event.last_px)
        kind = str(event.order_type).rsplit(".")[-1].lower()
        self.fills = [*self.fills, (quantity, paid, kind)]
        self.held += quantity
        if not self.held:
            self.cancel_all_orders(ID)
            self.stop = None
        elif self.bracket:
            (stop, target, guard), self.bracket = self.bracket, None
            base = paid - sign * self.slippage
            self.protect(stop and base - sign * stop, guard)
            if target and self.held:
                self.send(-self.held, "limit", base + sign * target)


class NautilusMarket:
    """The engine, with one market and one trader. slippage: ticks."""

    def __init__(self, slippage):
        quiet = b.BacktestEngineConfig(logging=LoggerConfig(bypass_logging=True))
        self.engine = b.BacktestEngine(quiet)
        self.engine.add_venue(
            m.Venue("SIM"),
            m.OmsType.NETTING,
            m.AccountType.MARGIN,
            [m.Money(1e12, DOLLARS)],
            fill_model=Slipped(slippage),
            fee_model=x.PerContractFeeModel(m.Money(0, DOLLARS)),
            reject_stop_orders=False,
        )
        about = m.Symbol("X"), m.AssetClass.INDEX, "X", 0, 1 << 62, DOLLARS, 0, price(1)
        self.engine.add_instrument(m.FuturesContract(ID, *about, ONE, ONE, 0, 0))
        self.trader = Trader()
        self.trader.slippage = slippage
        self.engine.add_strategy(self.trader)
        self.last, self.now = (0, 0), 0

    def show(self, quotes):
        """Show quotes (bid, ask), a microsecond apart."""
        data = []
        for bid, ask in quotes:
            self.now += 1000
            data.append(m.QuoteTick(ID, price(bid), price(ask), DEEP, DEEP, self.now, self.now))
        self.last = quotes[-1]
        self.engine.add_data(data)
        self.engine.run(streaming=True)
        self.engine.clear_data()

    def play(self, step):
        """Play a bar as `jaxtrade.paper.nautilus.step_of` describes it, and return its fills."""
        trader = self.trader
        trader.fills = ()
        if not step["again"]:
            self.now = max(self.now, step["time"] * 10**9)
            self.open(step)
            self.sweep(step)
        if step["force"] and trader.held:
            trader.todo = [(trader.send, -trader.held)]
            self.show([self.last])
        return trader.fills

    def open(self, step):
        """Show the open, with the orders of the decision before it."""
        trader, guard, todo = self.trader, step["guard"], []
        if trader.held:  # just before the open
            keep = (trader.protect, step["stop"], guard)
            trader.todo = [(trader.cancel_all_orders, ID) if step["exit"] else keep]
            self.show([self.last])
            if step["exit"]:
                trader.stop, todo = None, [(trader.send, -trader.held)]
        trader.bracket = (*step["bracket"], guard) if step["enter"] else None
        trader.todo = todo + [(trader.send, quantity) for quantity in step["enter"]]
        bid, ask = step["sides"]
        self.show([(bid[0], ask[0])])

    def sweep(self, step):
        """Show every tick of the side on which the position leaves."""
        held, (bid, ask) = self.trader.held, step["sides"]
        start, high, low, close = bid if held > 0 else ask
        first, second = (low, high) if held > 0 else (high, low)
        if step["nearer_extreme"] and abs(second - start) < abs(first - start):
            first, second = second, first
        spread = ask[0] - bid[0]
        path = [tick for legs in pairwise((start, first, second, close)) for tick in ticks(*legs)]
        if held and path:
            self.show([(at, at + spread) if held > 0 else (at - spread, at) for at in path])


def ticks(start, end):
    """Return the ticks after one up to another."""
    way = 1 if end > start else -1
    return range(start + way, end + way, way) if start != end else ()


def price(tick):
    """Return a price."""
    return m.Price(tick, 0)


if __name__ == "__main__":
    exchange = NautilusMarket(int(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(exchange.play(json.loads(line))), flush=True)
