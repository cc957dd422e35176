"""What all sections have in common."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Names = Annotated[tuple[str, ...], Field(strict=False)]
Widths = Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(strict=False)]


class Section(BaseModel, frozen=True):
    """Frozen and hashable; an unknown key, a value of another type or a number that is not finite is an error."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
