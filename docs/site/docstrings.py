"""How the documentation site reads docstrings: sections such as `Raises:` need no empty line above them."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

SECTION = re.compile(r"(?<=[^\n])\n(?=(?:Args|Returns|Raises|Yields):\n)")


class Sections(Extension):
    """Put an empty line above each section, which griffe expects."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Lay out the docstring of an object, once it is read."""
        if obj.docstring is not None:
            obj.docstring.value = SECTION.sub("\n\n", obj.docstring.value)
