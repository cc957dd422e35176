"""The account's side of a bar: what its legs realised and were marked at becomes balance, equity, high water, locks."""

from __future__ import annotations

from typing import NamedTuple

import jax.numpy as jnp

from jaxtrade.env import rules
from jaxtrade.env.leg import LegInBar
from jaxtrade.env.state import Account, AccountParams, ContractParams, Marks
from jaxtrade.types import Array


def settle(account: Account, cash: Array, marks: Marks, filled: Array, limits: AccountParams) -> tuple[Account, Array]:
    """The account after a bar, and bool[]: its equity reached a floor in it. The only place where the balance changes.

    Args:
        account: as the bar began.
        cash: int32[] mills, the sum over the legs of profit realised less commission.
        marks: the sums over the legs. Of several legs the sum of the highest marks is the highest equity there can
            have been: legs are not marked at the same moments.
        filled: bool[], an order, stop, target or forced exit was filled.
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
    """The floors of an account that holds one leg, as a second stop of that leg.

    The level moves inside a bar, with what the leg realises and is marked at; the account itself does not.
    account: as the bar began.
    """

    account: Account
    limits: AccountParams

    def _during(self, leg: LegInBar) -> Account:
        """The account with what the leg has realised and been marked at so far. Equity is not needed."""
        assert leg.high is not None, "a leg is marked before its level is asked for"
        return self.account.replace(
            balance=self.account.balance + leg.cash,
            high_water=rules.high_water_at(self.account, self.account.balance + leg.high, self.limits),
        )

    def price(self, leg: LegInBar, contract: ContractParams) -> Array:
        """int32[] ticks: `rules.liquidation_level`."""
        return rules.liquidation_level(leg.position, self._during(leg), self.limits, contract)

    def reached(self, leg: LegInBar, price: Array, contract: ContractParams) -> Array:
        """bool[]: at `price` (ticks) equity net of the exit commission is at or below a floor."""
        account = self._during(leg)
        floor = rules.highest_floor(account, self.limits)
        exit_cost = jnp.abs(leg.position.quantity) * contract.commission
        net = account.balance + rules.unrealised(leg.position, price, contract) - exit_cost
        return (floor != rules.NO_FLOOR) & (net <= floor)
