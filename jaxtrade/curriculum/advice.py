"""The advisor that a curriculum brings along: left out where it cannot serve the bars."""

from __future__ import annotations

from collections.abc import Sequence

from jaxtrade.curriculum.config import Phase
from jaxtrade.errors import ConfigError, DataError
from jaxtrade.runs.advice import check_advisor
from jaxtrade.runs.setup import prepare
from jaxtrade.text import Tell

OFF = "off"


def with_possible_advisors(phases: Sequence[Phase], tell: Tell) -> tuple[Phase, ...]:
    """The phases, without each advisor that cannot serve the phase's bars (`rules` need a volume,
    for example).

    Meant for advisors that nobody asked for. `tell` receives one line, with the reason, for each
    that is left out. Raises as `prepare`.
    """
    return tuple(_possible(phase, tell) for phase in phases)


def _possible(phase: Phase, tell: Tell) -> Phase:
    advisor = phase.config.advisor
    if advisor.kind == OFF:
        return phase
    market = prepare(phase.config).single
    try:
        check_advisor(phase.config, market)
    except (ConfigError, DataError) as error:
        tell(f"phase {phase.name}: trains without an advisor (choose one by --advisor): {error}")
        without = advisor.model_copy(update={"kind": OFF})
        return phase.model_copy(
            update={"config": phase.config.model_copy(update={"advisor": without})}
        )
    return phase
