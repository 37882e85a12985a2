"""Secrets that their surroundings reveal: the secret of an AWS access key (also found by its form
alone, if no similar string is near), and the data of a Kubernetes Secret.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Final

from confide_proxy.sealing.detection.decoding import is_text_in_base64
from confide_proxy.sealing.detection.finding import SecretFinding
from confide_proxy.sealing.detection.plausibility import entropy, is_placeholder, is_random, is_sample
from confide_proxy.sealing.detection.prefilter import compile_once, places

_NEAR: Final = 300
"""Most characters between an access key's id and its secret."""
_FORTY: Final = r"(?<![A-Za-z0-9+/=_.-])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=])"
_ALONE: Final = r"(?<![A-Za-z0-9+/=_.%@:-])[A-Za-z0-9+/]{40}(?![A-Za-z0-9+/=_.-])"
_ALONE_BITS: Final = 4.4
"""Bits of entropy per character, by frequency. Three in a thousand secrets have less; names and
paths rarely have as much.
"""
_NAMED: Final = r"[:=][ \t]{0,4}[\"']$"
"""A quoted value after a name, which `assignments` judges by that name: `"site_key": "…"` is
public.
"""
_AROUND: Final = 120
_DATA_AROUND: Final = r"[A-Za-z0-9+/=]{40}"
"""A long run of base64 nearby: the line is a part of something longer."""
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_KIND: Final = "kind: secret"
_MOST_DATA: Final = 64 * 1024
_DATA: Final = r"^([ \t]{0,20})data:[ \t]*\r?\n"
_ENTRY: Final = (
    r"([ \t]{1,40})[\w.-]{1,100}:[ \t]{1,4}[\"']?(?P<value>[A-Za-z0-9+/]{4,8192}={0,2})[\"']?[ \t]*(?:\r?\n|$)"
)
_PUBLIC: Final = ("-----BEGIN CERTIFICATE", "-----BEGIN PUBLIC")
_SHORTEST: Final = 6


def find_aws_secrets(text: str, found: Iterable[SecretFinding]) -> Iterator[SecretFinding]:
    """Yield each string of forty characters near an access key id that can be its secret."""
    for each in found:
        if each.kind != "aws-access-key-id":
            continue
        begin = max(0, each.start - _NEAR)
        for match in compile_once(_FORTY).finditer(text, begin, min(len(text), each.end + _NEAR)):
            if (
                not _HEX.issuperset(match[0])
                and is_random(match[0], 40)
                and any(letter.isupper() for letter in match[0])
            ):
                yield SecretFinding("aws-secret-key", match.start(), match.end(), 0.85, "token")


def find_lone_aws_secrets(text: str, long: Iterable[str]) -> Iterator[SecretFinding]:
    """Yield each random string of forty base64 characters that doesn't decode to text and isn't
    part of a longer block.

    `long` are the text's long words.
    """
    if not compile_once(_ALONE).search("\n".join(long)):
        return
    for match in compile_once(_ALONE).finditer(text):
        value, (start, end) = match[0], match.span()
        is_mixed = any(map(str.isdigit, value)) and any(map(str.islower, value)) and any(map(str.isupper, value))
        if (
            is_mixed
            and is_random(value, 40)
            and entropy(value) >= _ALONE_BITS
            and not is_sample(value)
            and not is_text_in_base64(value)
            and not compile_once(_NAMED).search(text, max(0, start - 8), start)
            and not compile_once(_DATA_AROUND).search(text, max(0, start - _AROUND), start)
            and not compile_once(_DATA_AROUND).search(text, end, end + _AROUND)
        ):
            yield SecretFinding("aws-secret-key", start, end, 0.75, "alone")


def find_kubernetes(text: str, lowered: str) -> Iterator[SecretFinding]:
    """Yield each value in the `data` of a Kubernetes Secret that is base64 of text and no
    certificate, under any key.
    """
    behind = stop = 0
    following = compile_once(_DATA, re.MULTILINE).finditer(text)
    data = next(following, None)
    for at in places(lowered, _KIND):
        # Both positions only move forward, so the cost stays linear in the number of documents.
        while data and data.start() < max(at, behind):
            data = next(following, None)
        if stop < at:
            stop = end if (end := text.find("\n---", at)) >= 0 else len(text)
        if data is None or data.end() > min(stop, at + _MOST_DATA):
            continue
        behind = data.end()
        while (entry := compile_once(_ENTRY).match(text, behind)) and len(entry[1]) > len(data[1]):
            behind = entry.end()
            if _is_secret(entry["value"]):
                yield SecretFinding("secret", *entry.span("value"), 0.8, "assignment")


def _is_secret(value: str) -> bool:
    try:
        held = binascii.a2b_base64(value, strict_mode=True).decode().strip()
    except ValueError:
        return False
    return (
        len(held) >= _SHORTEST
        and not held.startswith(_PUBLIC)
        and not is_placeholder(held)
        and any(c.isdigit() for c in held)
    )
