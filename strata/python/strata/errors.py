"""The exceptions of Strata: each says what is wrong, what was expected, and one fix."""

__all__ = ["StrataError", "UserError", "MachineError", "InternalError"]


class StrataError(Exception):
    """An error of Strata. Its parts are empty strings where it has none."""

    operation = where = what = expected = got = fix = ""


class UserError(StrataError, ValueError):
    """The input is wrong: a recipe, a model, a mini-batch."""


class MachineError(StrataError, RuntimeError):
    """A process, a disk or memory has failed."""


class InternalError(StrataError, RuntimeError):
    """A mistake in Strata."""
