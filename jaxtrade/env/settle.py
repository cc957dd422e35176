"""Settlement of a bar: the results and marks of the legs change the account's balance, equity, high
water and locks.
"""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxtrade.env import rules
from jaxtrade.env.execution import LegInBar
from jaxtrade.env.state import Account, AccountParams, ContractParams, Marks
from jaxtrade.types import Array


def settle(
    account: Account, cash: Array, marks: Marks, filled: Array, limits: AccountParams
) -> tuple[Account, Array]:
    """Settle one bar -> (account after the bar, bool[] True if its equity reached a floor in the
    bar).

    This is the only function that changes the balance.

    Args:
        account: the account at the start of the bar.
        cash: int32[] mills, sum of the legs' realised profit less commission.
        marks: sums over the legs. With several legs the sum of the highest marks is an upper bound
            of the highest equity, because the legs reach these marks at different times.
        filled: bool[], True if an order, stop, target or forced exit was filled.
    """
    balance = account.balance + cash
    after = account.replace(
        balance=balance,
        equity=balance + marks.close,
        high_water=rules.high_water_at(account, account.balance + marks.high, limits),
        days=account.days + (filled & ~account.traded).astype(jnp.int32),
        traded=account.traded | filled,
    )
    daily = rules.at_daily_floor(after, limits)
    breach = rules.at_drawdown_floor(after, limits) | (daily & ~account.locked)
    return after.replace(locked=account.locked | daily), breach


class StopLevel(NamedTuple):
    """The floors of an account with a single leg, as a second stop of this leg.

    Inside a bar the level moves with the leg's realised profit and marks. The account itself
    changes only at the end of the bar. account: the account at the start of the bar.
    """

    account: Account
    limits: AccountParams

    def _during(self, leg: LegInBar) -> Account:
        """The account with the leg's realised profit and marks so far. `equity` is not updated;
        nothing here reads it.
        """
        assert leg.high is not None, "a leg is marked before its level is asked for"
        return self.account.replace(
            balance=self.account.balance + leg.cash,
            high_water=rules.high_water_at(
                self.account, self.account.balance + leg.high, self.limits
            ),
        )

    def price(self, leg: LegInBar, contract: ContractParams) -> Array:
        """int32[] ticks: `rules.liquidation_level`."""
        return rules.liquidation_level(leg.position, self._during(leg), self.limits, contract)

    def reached(self, leg: LegInBar, price: Array, contract: ContractParams) -> Array:
        """bool[]: True if equity at `price` (ticks), net of the exit commission, is at or below a
        floor.
        """
        account = self._during(leg)
        floor = rules.highest_floor(account, self.limits)
        exit_cost = jnp.abs(leg.position.quantity) * contract.commission
        net = account.balance + rules.unrealised(leg.position, price, contract) - exit_cost
        return (floor != rules.NO_FLOOR) & (net <= floor)
