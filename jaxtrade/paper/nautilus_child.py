"""NautilusTrader's simulated exchange in a process of its own: steps in, a line each bar, fills out.

Run as a file by `jaxtrade.paper.nautilus`, it imports nothing of jaxtrade. Prices are whole ticks. A
step is orders, which replace all that rest, and the quotes (bid, ask) that follow; the orders meet
the first of them. An order is a kind, its level if it has one, and signed contracts; None closes.
"""

import json
import sys

import nautilus_trader.backtest as b  # pyright: ignore[reportMissingImports]
import nautilus_trader.execution as x  # pyright: ignore[reportMissingImports]
import nautilus_trader.model as m  # pyright: ignore[reportMissingImports]
from nautilus_trader.common import LoggerConfig  # pyright: ignore[reportMissingImports]
from nautilus_trader.trading import Strategy  # pyright: ignore[reportMissingImports]

ID, DOLLARS = m.InstrumentId.from_str("X.SIM"), m.Currency.from_str("USD")
ONE, DEEP = m.Quantity.from_int(1), m.Quantity.from_int(1_000_000)


class Trader(Strategy):
    """Sends orders, and notes fills. What closes the position cancels what is left."""

    held, fills = 0, ()

    def send(self, kind, quantity, *level):
        """Send an order, unless it would close nothing."""
        if quantity := -self.held if quantity is None else quantity:
            side = m.OrderSide.BUY if quantity > 0 else m.OrderSide.SELL
            size, prices = m.Quantity.from_int(abs(quantity)), [m.Price(x, 0) for x in level]
            self.submit_order(getattr(self.order_factory, kind)(ID, side, size, *prices))

    def on_order_filled(self, event):
        """Note a fill."""
        quantity = int(event.last_qty) * (1 if event.order_side == m.OrderSide.BUY else -1)
        kind = str(event.order_type).rsplit(".")[-1].lower()
        self.fills = [*self.fills, (quantity, int(event.last_px), kind)]
        self.held += quantity
        if not self.held:
            self.cancel_all_orders(ID)


def open_exchange(trader):
    """Return the engine, with one market and one trader."""
    engine = b.BacktestEngine(b.BacktestEngineConfig(logging=LoggerConfig(bypass_logging=True)))
    engine.add_venue(
        m.Venue("SIM"),
        m.OmsType.NETTING,
        m.AccountType.MARGIN,
        [m.Money(1e12, DOLLARS)],
        fee_model=x.PerContractFeeModel(m.Money(0, DOLLARS)),
        reject_stop_orders=False,
    )
    about = m.Symbol("X"), m.AssetClass.INDEX, "X", 0, 1 << 62, DOLLARS, 0, m.Price(1, 0)
    engine.add_instrument(m.FuturesContract(ID, *about, ONE, ONE, 0, 0))
    engine.add_strategy(trader)
    return engine


def show(engine, second, quotes):
    """Show quotes from a second on, one a second: in less time it refuses so many orders."""
    data = []
    for at, (bid, ask) in enumerate(quotes, second):
        time, bid, ask = at * 10**9, m.Price(bid, 0), m.Price(ask, 0)
        data.append(m.QuoteTick(ID, bid, ask, DEEP, DEEP, time, time))
    engine.add_data(data)
    engine.run(streaming=True)
    engine.clear_data()


def main():
    """Play the bars of standard input."""
    trader, shown = Trader(), [(0, 0)]
    engine, second = open_exchange(trader), 1
    show(engine, 0, shown)  # the trader begins with the first quote
    for line in sys.stdin:
        trader.fills = ()
        for orders, quotes in json.loads(line):
            if orders is not None:
                trader.cancel_all_orders(ID)
                for order in orders:
                    trader.send(*order)
            shown = quotes or shown[-1:]
            show(engine, second, shown)
            second += len(shown)
        print(json.dumps(trader.fills), flush=True)


if __name__ == "__main__":
    main()
