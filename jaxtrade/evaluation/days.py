"""How many independent days stand behind the figures of an evaluation, in one sentence for its
reader.
"""

from __future__ import annotations

from jaxtrade.evaluation.metrics import MIN_SESSIONS
from jaxtrade.text import several

CHOSEN_HERE = "the policy was chosen on these very days"


def days_note(
    days: int, trained: int, chosen: int | None = None, symbols: int = 1, same: bool = False
) -> str:
    """The label of an evaluation that says on how much it rests.

    Args:
        days: trade dates evaluated. Several symbols on one date count once: the market moves them
            together.
        trained: sessions of the training split; of several symbols the trade dates.
        chosen: sessions on which the best policy was chosen; None if no policy was chosen by them.
        symbols: number of symbols whose figures are added up.
        same: whether the policy was chosen on the very days that are evaluated.
    """
    together = f" ({symbols} symbols on one date count as one day)" if symbols > 1 else ""
    if days == 1:
        text = f"every figure below rests on one day{together}, and one day proves nothing"
    elif days < MIN_SESSIONS:
        text = f"every figure below rests on {days} days{together}, which are too few to tell skill from luck"
    else:
        text = f"every figure below rests on {days} independent days{together}"
    if same:
        return f"{text}; {CHOSEN_HERE}, so they flatter it"
    picked = "" if chosen is None else f"; it was chosen on {several(chosen, 'other day')}"
    return f"{text}; the policy was trained on {several(trained, 'day')}{picked}"
