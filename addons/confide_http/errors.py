"""Errors of the gateway on this device, with messages for users."""

from __future__ import annotations

from confide_crypto.errors import EXIT_INPUT, ConfideError


class GatewayError(ConfideError):
    """`confide http serve` cannot run as asked."""

    exit_code = EXIT_INPUT


class TokenError(ConfideError):
    """A gateway token cannot be created, or none has that name."""

    exit_code = EXIT_INPUT
