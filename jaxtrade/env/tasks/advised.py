"""The task `advised`: the actions of `manage`; the observation adds context of the bar and the
trade record.
"""

from __future__ import annotations

from dataclasses import dataclass

from jaxtrade.config import EnvConfig
from jaxtrade.data.features.schema import CONTEXT_FEATURES
from jaxtrade.env.episode import RISK_SLOTS, account_seen, add_bar, new_record, risk_slots
from jaxtrade.env.observation import context_slots, context_values
from jaxtrade.env.state import EnvParams, ObservationRef, Slot
from jaxtrade.env.tasks.base import RecordKeeper
from jaxtrade.env.tasks.manage import ManageTask
from jaxtrade.types import Array


@dataclass(frozen=True)
class AdvisedTask(ManageTask):
    """The observation of `manage`, context features of the decision bar, and five slots of the
    trade record.
    """

    def slots(self, config: EnvConfig) -> tuple[Slot, ...]:
        risks = (Slot(name, "account", 0) for name in RISK_SLOTS)
        return (*super().slots(config), *context_slots(self.context), *risks)

    def observe(
        self, config: EnvConfig, ref: ObservationRef, params: EnvParams
    ) -> tuple[Array, ...]:
        return (
            *super().observe(config, ref, params),
            context_values(config, self.context, ref, params),
            risk_slots(config.scaling, ref.account, params.account),
        )


ADVISED = AdvisedTask(CONTEXT_FEATURES, RecordKeeper(new_record, add_bar, account_seen))
