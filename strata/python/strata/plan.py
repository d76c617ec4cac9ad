"""Plans: where a model is cut, what each rank holds, and how long a step takes; and pages that show them."""

from __future__ import annotations

import html
import json

__all__ = ["Page", "Plan"]

_HEIGHT = 900  # pixels of a page in a notebook


class Page:
    """An HTML page that needs no other file. A notebook shows it."""

    def __init__(self, text: str, height: int = _HEIGHT):
        #: The page's source.
        self.html = text
        self._height = height

    def __repr__(self) -> str:
        return f"Page({len(self.html):,} characters)"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width:100%;height:{self._height}px;border:0"></iframe>'


class Plan:
    """A plan. `print(plan)` shows its tables; a notebook shows its page with the timeline."""

    def __init__(self, core):
        self._core = core

    @property
    def text(self) -> str:
        """The tables that `strata plan` prints."""
        return self._core.text

    @property
    def json(self) -> dict:
        """Everything as a dictionary: stages, bytes, seconds, each rank's timeline."""
        return json.loads(self._core.json)

    @property
    def html(self) -> str:
        """A page with the predicted timeline and memory, which needs no other file."""
        return self._core.html

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return Page(self.html)._repr_html_()
