"""Errors. Each message is one sentence that says what is wrong and what to do."""


class TaprError(Exception):
    """Something failed that the user did not cause; the command line exits with 1."""

    exit_code = 1


class BadInput(TaprError):
    """What was asked for cannot be done as asked; the command line exits with 2, the API with a 4xx."""

    exit_code = 2
