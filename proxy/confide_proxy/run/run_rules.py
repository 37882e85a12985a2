"""Read the user's rules for `confide run` from `proxy.toml`, without checking the rest of that
file, which would take longer than starting the command. `config` checks all of it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from confide_crypto.errors import KeyFileError
from confide_crypto.keys.strict_modes import check_strict_modes


def rules(config: Path) -> Mapping[str, list[str]] | None:
    """Return the commands that may use a secret without a question, by the name or id of the secret
    in the rule. None if `config` must read the file, and report what is wrong with it.
    """
    try:
        data = config.read_bytes()
        check_strict_modes(config)
        section: Any = tomllib.loads(data.decode()).get("run", {})
    except FileNotFoundError:
        return {}
    except (OSError, KeyFileError, ValueError):
        return None
    if not isinstance(section, dict) or not section.keys() <= {"allow", "ca_file"}:
        return None
    allow: Any = section.get("allow", {})
    if not isinstance(allow, dict) or not all(map(_is_commands, allow.values())):
        return None
    return allow


def _is_commands(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) and one for one in value)
