"""Errors of the logs that several nodes share, with messages for users."""

from __future__ import annotations

from confide_daemon.errors import StorageError


class LogError(StorageError):
    """The log of a space was altered, or does not match the local copy."""
