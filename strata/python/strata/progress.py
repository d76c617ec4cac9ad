"""The progress of a run: a line that is drawn over on a terminal and in a notebook, and a line now and then elsewhere."""

import shutil
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
    """Shows the last of many lines, and notes above it."""

    def __init__(self, stream=None):
        self._stream = stream if stream is not None else sys.stderr
        display = _notebook_display()
        self._handle = display({"text/plain": ""}, raw=True, display_id=True) if display else None
        self._draws_over = self._handle is None and self._stream.isatty()
        self._written = 0.0
        self._line = self._shown = ""

    def update(self, line):
        """Shows the line in place of the one before."""
        self._line = line
        if self._handle is not None:
            self._handle.update({"text/plain": line}, raw=True)
        elif self._draws_over:
            self._draw()
        elif time.monotonic() - self._written >= _SECONDS_BETWEEN_LINES:
            self._write_line()

    def note(self, text):
        """Shows a line that stays."""
        self._stream.write("\r\x1b[K" + text + "\n" if self._draws_over else text + "\n")
        if self._draws_over:
            self._draw()
        self._stream.flush()

    def close(self):
        """Leaves the last line."""
        if self._draws_over and self._line:
            self._stream.write("\n")
        elif self._handle is None and self._line != self._shown:
            self._write_line()

    def _draw(self):
        # A wrapped line cannot be drawn over.
        self._stream.write("\r" + self._line[: shutil.get_terminal_size().columns - 1] + "\x1b[K")
        self._stream.flush()

    def _write_line(self):
        self._written, self._shown = time.monotonic(), self._line
        self._stream.write(self._line + "\n")
        self._stream.flush()
