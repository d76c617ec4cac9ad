"""Plans: where a model is cut, what each rank holds, and how long a step takes."""

import html
import json

__all__ = ["Plan"]

_HEIGHT = 900  # pixels of the page in a notebook


class Plan:
    """A plan. `print(plan)` shows its tables; a notebook shows its page with the timeline."""

    def __init__(self, core):
        self._core = core

    @property
    def text(self):
        """The tables that `strata plan` prints."""
        return self._core.text

    @property
    def json(self):
        """Everything as a dictionary: stages, bytes, seconds, each rank's timeline."""
        return json.loads(self._core.json)

    @property
    def html(self):
        """A page with the predicted timeline and memory, which needs no other file."""
        return self._core.html

    def __repr__(self):
        return self.text

    def _repr_html_(self):
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'
