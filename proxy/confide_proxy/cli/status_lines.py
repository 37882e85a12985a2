"""The text output of `confide status`: a summary of six lines, or every field with `-v`. Does no
I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from confide_memory.commands.console import count_noun, size
from confide_memory.documents import GLOBAL_PROJECT, local_time
from confide_memory.versions import WINDOW, is_behind
from confide_proxy import VERSION
from confide_proxy.addons import AddonMessage

_LABEL: Final = 9
_MOST_LISTED: Final = 20
"""Conflicts that a daemon lists. If there are more, those of one project may be missing."""
_SIZES: Final = frozenset({"dbSize", "pendingTranscriptBytes"})
_SECONDS: Final = frozenset({"indexAge", "retryIn"})
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)")


def summary(facts: Mapping[str, object], more: Iterable[AddonMessage] = ()) -> list[str]:
    """Return the six lines of `confide status`, made from its `--json` fields. Problems may add
    lines.

    Args:
        facts: the `--json` fields.
        more: the messages of add-ons.

    Raises UnfitAnswerError if the daemon's response contains an invalid time.
    """
    return [
        _label_line("daemon", _daemon(facts)),
        _label_line("space", _space(facts)),
        _label_line("project", _project(facts)),
        _label_line("index", _index(facts)),
        _label_line("waiting", _waiting(facts)),
        *_labelled_all("removals", _removals(facts)),
        *(line for told in more for line in _labelled_all(told.heading, told.rows)),
        *_labelled_all("problems", _problems(facts)),
    ]


def down_summary(link: Mapping[str, Any], waiting: str, removals: Sequence[str] = ()) -> list[str]:
    """Return the lines of `confide status` while there is no link. They do not give the reason: the
    error that ends the command does.
    """
    where = link["address"] or "this device's own, which is started when it is needed"
    words = link["words"] or "its key cannot be read"
    return [
        _label_line("daemon", f"{where}, link {link['state']}"),
        _label_line("device", words),
        _label_line("waiting", waiting),
        *_labelled_all("removals", removals),
    ]


def details(facts: Mapping[str, object]) -> Iterator[str]:
    """Yield the lines of `confide status -v`, one for each field."""
    for name, value in facts.items():
        yield from _field_lines(name, value, "")


def waiting_line(queued: int, dead: int) -> str:
    """Describe how many calls wait on this device for the daemon, and how many the daemon has
    refused (`dead`).
    """
    parts = [f"{count_noun(queued, 'store')} for the daemon"] if queued else []
    parts += [f"{dead:,} that it refused"] if dead else []
    return (
        f"{'; '.join(parts)}: confide sync --queue shows {'it' if queued + dead == 1 else 'them'}"
        if parts
        else "nothing"
    )


def duration(seconds: float) -> str:
    """Format a duration in seconds for users."""
    for length, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= length:
            return count_noun(int(seconds // length), unit)
    return f"{seconds:.1f} seconds" if seconds < 10 else f"{seconds:.0f} seconds"


def _daemon(facts: Mapping[str, Any]) -> str:
    link = facts["link"]
    where = "on this device, " if facts.get("isLocal") else ""
    tls = " (TLS)" if link.get("tls") else ""
    return f"{where}{link['address']}{tls}, version {facts['daemonVersion']}, link {link['state']}, {link['roundTripMs']:.0f} ms"


def _space(facts: Mapping[str, Any]) -> str:
    link, sealing = facts["link"], facts["sealing"]
    codes = sealing.get("recoveryCodes", 0)
    devices = count_noun(sealing["devices"] - codes, "device")
    devices += f" and {count_noun(codes, 'recovery code')}" if codes else ""
    name = link.get("device") or link["caller"]
    seals = "secrets are sealed" if sealing["canSeal"] else "secrets cannot be sealed here yet"
    return f"{link['space']}, {devices}, {seals}; this device is {name}: {link['words']}"


def _project(facts: Mapping[str, Any]) -> str:
    allow = f" (calls itself {facts['claim']}: confide project allow)" if "claim" in facts else ""
    name = "none here, the memory that all projects share" if facts["project"] == GLOBAL_PROJECT else facts["project"]
    parts = [f"{name}{allow}", count_noun(facts["filesHere"], "file") + " here"]
    if facts["lastSync"]:
        parts.append(f"compared {local_time(facts['lastSync'])}")
    else:
        parts.append("not compared yet: confide sync")
    if facts["pendingUploads"]:
        parts.append(f"{count_noun(facts['pendingUploads'], 'change')} not sent")
    listed = facts.get("clashes", ())
    clashes = sum(each["project"] == facts["project"] for each in listed)
    if clashes or len(listed) < _MOST_LISTED:
        parts.append(count_noun(clashes, "conflict") if clashes else "no conflict")
    return ", ".join(parts)


def _index(facts: Mapping[str, Any]) -> str:
    pieces = f"{count_noun(facts['totalChunks'], 'chunk')} of {count_noun(facts['totalFiles'], 'file')} in the space"
    waits = facts["queuedChunks"]
    return f"{pieces}; {f'{waits:,} wait for the model' if waits else 'all ready'} ({facts['model'] or 'no model'})"


def _waiting(facts: Mapping[str, Any]) -> str:
    message = waiting_line(facts["queuedOffline"] or 0, facts["deadLetters"] or 0)
    if pending := facts.get("pendingTranscriptBytes"):
        transcripts = f"{size(pending)} of transcripts"
        return transcripts if message == "nothing" else f"{message}; {transcripts}"
    return message


def _removals(facts: Mapping[str, Any]) -> Sequence[str]:
    found: Sequence[str] = facts.get("removals", ())
    return found


def _problems(facts: Mapping[str, Any]) -> list[str]:
    found: list[str] = []
    sealing = facts["sealing"]
    if "problem" in sealing:
        found += [sealing["problem"], *([f"hint: {sealing['hint']}"] if sealing["hint"] else [])]
    found += [sealing["warning"]] if "warning" in sealing else []
    found += [str(warning) for warning in facts["warnings"]]
    if "wentBack" in facts:
        found.append(f"the daemon was restored {facts['wentBack']}")
    if "unsealedFindings" in facts and not facts["unsealedFindings"].startswith("0,"):
        found.append(f"credentials in clear: {facts['unsealedFindings']}")
    if is_behind(facts["daemonVersion"], VERSION):
        # If the device is older, the newer daemon reports it: the device may not know the supported
        # window.
        found.append(
            f"confided {facts['daemonVersion']} there is more than {WINDOW} minor versions older than confide {VERSION} here: upgrade it"
        )
    if "unknownTools" in facts:
        found.append(f"the daemon is newer; an update of confide brings its tools: {facts['unknownTools']}")
    return found or ["none"]


def _field_lines(name: str, value: Any, indent: str) -> Iterator[str]:
    label = f"{indent}{_CAMEL.sub(' ', name).lower()}"
    if isinstance(value, Mapping):
        if not value:
            yield f"{label}: none"
            return
        yield f"{label}:"
        for key, inner in value.items():
            yield from _field_lines(str(key), inner, f"{indent}  ")
    elif isinstance(value, list) and value and isinstance(value[0], Mapping):
        yield f"{label}:"
        for each in value:
            yield f"{indent}  " + ", ".join(
                f"{_CAMEL.sub(' ', key).lower()} {_plain(key, inner)}" for key, inner in each.items()
            )
    else:
        yield f"{label}: {_plain(name, value)}"


def _plain(name: str, value: Any) -> str:
    match value:
        case None:
            return "not known"
        case bool():
            return "yes" if value else "no"
        case int() | float() if name in _SIZES:
            return size(value)
        case int() | float() if name in _SECONDS:
            return duration(value)
        case int():
            return f"{value:,}"
        case str() if _TIME.fullmatch(value):
            return local_time(value)
        case list():
            return ", ".join(str(each) for each in value) or "none"
        case Mapping():
            return ", ".join(f"{key} {_plain(str(key), inner)}" for key, inner in value.items()) or "none"
    return str(value)


def _label_line(label: str, text: str) -> str:
    return f"{label:<{_LABEL}} {text}"


def _labelled_all(label: str, texts: Sequence[str]) -> list[str]:
    return [_label_line(label if number == 0 else "", text) for number, text in enumerate(texts)]
