"""The progress of a run: a line that is drawn over on a terminal and in a notebook, and a line now and then elsewhere."""

import sys
import time

__all__ = ["Progress"]

_SECONDS_BETWEEN_LINES = 10  # where nothing can be drawn over


def _notebook_display():
    """IPython's display in a notebook, else None."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        return None
    shell = get_ipython()
    return display if shell is not None and shell.__class__.__name__ == "ZMQInteractiveShell" else None


class Progress:
    """Shows steps; `steps`: how many the run has, 0 if unknown."""

    def __init__(self, steps=0, stream=None):
        self._steps = steps
        self._stream = stream if stream is not None else sys.stderr
        display = _notebook_display()
        self._handle = display({"text/plain": ""}, raw=True, display_id=True) if display else None
        self._draws_over = self._handle is None and self._stream.isatty()
        self._written = 0.0
        self._line = ""

    def update(self, record):
        """Shows a record of a step."""
        self._line = self._text(record)
        if self._handle is not None:
            self._handle.update({"text/plain": self._line}, raw=True)
        elif self._draws_over:
            self._stream.write("\r\x1b[K" + self._line)
            self._stream.flush()
        elif time.monotonic() - self._written >= _SECONDS_BETWEEN_LINES:
            self._write_line()

    def note(self, text):
        """Shows a line that stays, above the progress."""
        if self._draws_over:
            self._stream.write("\r\x1b[K" + text + "\n" + self._line)
        else:
            self._stream.write(text + "\n")
        self._stream.flush()

    def close(self):
        """Leaves the last step's line."""
        if self._draws_over and self._line:
            self._stream.write("\n")
        elif self._handle is None and self._line:
            self._write_line()

    def _write_line(self):
        self._written = time.monotonic()
        self._stream.write(self._line + "\n")
        self._stream.flush()

    def _text(self, record):
        unit, speed = next(((key[: -len("s_per_second")], value) for key, value in record.items() if key.endswith("s_per_second")), ("", 0))
        total = f"/{self._steps}" if self._steps else ""
        line = f"step {record['step']}{total}  loss {_number(record['loss'], '.4f')}  {_number(speed, ',.0f')} {unit}s/s"
        line += f"  {_number(record['step_seconds'], '.3g')} s a step"
        if record.get("validation_loss") is not None:
            line += f"  validation {record['validation_loss']:.4f}"
        return line


def _number(value, form):
    return "not finite" if value is None else format(value, form)
