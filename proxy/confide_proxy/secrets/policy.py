"""What the user wants done with credentials: the section `[secrets]` of `proxy.toml`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from confide_proxy.errors import ConfigError

SOURCES: Final = ("tools", "files", "transcripts", "imports")
"""Where a text comes from: arguments of tools, files of memory, transcripts of sessions, imports of other systems."""
ACTIONS: Final = ("seal", "redact", "block", "allow")
KEPT: Final = ("keep", "replace")
"""What becomes of a credential in the file that it stands in."""
_FINGERPRINT_CHARS: Final = 24


class Policy(NamedTuple):
    """What becomes of a credential, by where it stands. No dataclass, whose making would cost every start of `confide mcp` a millisecond.

    Attributes:
        tools, files, transcripts, imports: one of `ACTIONS`.
        min_confidence: from which confidence on (above 0, at most 1); what is less sure is let through.
        allow: fingerprints of what may go as it is (`fingerprints`).
        local: one of `KEPT`: whether a file of memory keeps what is sealed in clear, or gets a placeholder in its place too.
    """

    tools: str = "seal"
    files: str = "seal"
    transcripts: str = "seal"
    imports: str = "seal"
    min_confidence: float = 0.75
    allow: tuple[str, ...] = ()
    local: str = "keep"

    def action(self, source: str, confidence: float, fingerprint: str | None = None) -> str:
        """What becomes of one: an action of `ACTIONS`.

        Args:
            source: of `SOURCES`.
            fingerprint: not needed where `allow` is empty.
        """
        if confidence < self.min_confidence or fingerprint in self.allow:
            return "allow"
        return str(getattr(self, source))


_DEFAULTS: Final = Policy._field_defaults


def is_fingerprint(value: Any) -> bool:
    """Whether it has the form of one."""
    return isinstance(value, str) and len(value) == _FINGERPRINT_CHARS and set(value) <= set("0123456789abcdef")


def policy_of(path: Path, table: Any) -> Policy:
    """The policy that a section of the configuration in `path` describes.

    Raises:
        ConfigError: it is no table, or holds a key or a value that is not ours.
    """
    if not isinstance(table, dict):
        raise ConfigError(path, "has a wrong value for 'secrets'", hint="it is a section: [secrets]")
    return Policy(**{key: _checked(path, key, value) for key, value in table.items()})


def _checked(path: Path, key: str, value: Any) -> Any:
    shown = f"'{key}' in [secrets]"
    if key not in _DEFAULTS:
        import difflib

        near = difflib.get_close_matches(key, _DEFAULTS, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"the options are {', '.join(_DEFAULTS)}"
        raise ConfigError(path, f"has an unknown option {shown}", hint=hint)
    if key in SOURCES and value not in ACTIONS:
        raise ConfigError(path, f"has a wrong value for {shown}", hint=f"it is one of {', '.join(ACTIONS)}")
    if key == "local" and value not in KEPT:
        raise ConfigError(path, f"has a wrong value for {shown}", hint=f"it is {' or '.join(KEPT)}")
    if key == "min_confidence":
        if type(value) not in (int, float) or not 0 < value <= 1:
            raise ConfigError(path, f"has a wrong value for {shown}", hint="it is a number above 0 and at most 1")
        return float(value)
    if key == "allow":
        # What is wrong is not repeated: somebody may have put the credential itself there.
        if not isinstance(value, list) or not all(is_fingerprint(each) for each in value):
            hint = "it takes fingerprints as confide scan prints them, 24 hex digits each"
            raise ConfigError(path, f"has a wrong value for {shown}", hint=hint)
        return tuple(value)
    return value
