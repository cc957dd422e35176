"""The section `sampler` of a configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from jaxtrade.config.base import Section
from jaxtrade.config.learning import name_in
from jaxtrade.parts import SAMPLERS


class SamplerConfig(Section, frozen=True):
    """How the symbol of an episode is chosen, in training on several symbols."""

    kind: Annotated[str, name_in(SAMPLERS)] = Field(
        default="uniform",
        description="uniform: every session equally often; balanced: every symbol equally often; "
        "round_robin: the symbols in turn; prioritised: a symbol as often as the policy's errors on it are large",
    )
    rate: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="prioritised: weight of the newest update in the average error of a symbol",
    )
    even_share: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="prioritised: share of episodes that all symbols "
        "get equally, so that none is forgotten",
    )
