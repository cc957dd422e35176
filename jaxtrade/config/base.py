"""The base class of all sections of a configuration."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Names = Annotated[tuple[str, ...], Field(strict=False)]
Widths = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)]


class Section(BaseModel, frozen=True):
    """A frozen and hashable section. It refuses unknown keys, values of another type, NaN and infinity."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
