"""The rules and costs that are the same in every environment, for prompts. No position, balance or
result.
"""

from __future__ import annotations

from jaxtrade.advisor.host.context.desk_texts import AccountRules
from jaxtrade.advisor.labels import round_turn
from jaxtrade.config import RunConfig
from jaxtrade.config.accounts import resolve_account
from jaxtrade.data.market import Market


def account_rules(market: Market, config: RunConfig) -> AccountRules:
    """The account's rules (dollars) and the costs of a round turn with one contract.

    Raises ConfigError for an unknown account preset or a commission that is not a whole number of
    mills.
    """
    preset, contract = resolve_account(config.account), market.contract.under(config)
    return AccountRules(
        balance=preset.start_balance,
        drawdown=preset.drawdown,
        trailing=preset.trailing,
        daily_loss=preset.daily_loss,
        target=preset.profit_target,
        commission=2 * contract.commission_mills / 1000,
        slippage=2 * contract.slippage_ticks,
        total=round_turn(market, config),
        tick_size=str(contract.tick_size),
        tick_value=contract.tick_mills / 1000,
        currency=contract.currency,
        two_sided=market.bars.ask is not None,
    )
