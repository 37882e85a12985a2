"""Read the user's settings for `confide run` from `proxy.toml`, without checking the rest of that
file, which would take longer than starting the command. `config` checks all of it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.strict_modes import check_strict_modes


class RunRules(NamedTuple):
    """The settings for `confide run`.

    Attributes:
        allow: the commands that may use a secret without a question, by the name or id of the secret.
        ca_file: file of further root certificates for hosts that get a secret; "" for none.
    """

    allow: Mapping[str, list[str]]
    ca_file: str


def read(config: Path) -> RunRules | None:
    """Return the settings. None if `config` must read the file, and report what is wrong with it."""
    try:
        data = config.read_bytes()
        check_strict_modes(config)
        section: Any = tomllib.loads(data.decode()).get("run", {})
    except FileNotFoundError:
        return RunRules({}, "")
    except (OSError, KeyFileError, ValueError):
        return None
    if not isinstance(section, dict) or not section.keys() <= {"allow", "ca_file"}:
        return None
    allow: Any = section.get("allow", {})
    ca_file: Any = section.get("ca_file", "")
    if not isinstance(allow, dict) or not all(map(_is_commands, allow.values())) or not isinstance(ca_file, str):
        return None
    if ca_file and not Path(ca_file).expanduser().is_absolute():
        return None
    return RunRules(allow, ca_file)


def _is_commands(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)
