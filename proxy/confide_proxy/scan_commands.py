"""`confide scan`: which credentials stand in what would be sent, before anything is (docs/secrets.md). It never shows a value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from confide_proxy import projects
from confide_proxy.options import AsJson, ProjectDir, err, folder_of, out, print_json

if TYPE_CHECKING:
    from confide_proxy.cli import Here
    from confide_proxy.outgoing import Outgoing
    from confide_proxy.secrets.finding import Finding
    from confide_proxy.secrets.fingerprints import Fingerprints
    from confide_proxy.secrets.policy import Policy

FOUND: Final = 9
"""The exit code where there is a credential that the policy would not let through (docs/commands.md)."""


@dataclass(frozen=True, slots=True)
class Sight:
    """A finding as it is shown."""

    path: str
    line: int
    source: str
    kind: str
    confidence: float
    action: str
    prefix: str
    length: int
    fingerprint: str

    def as_json(self) -> dict[str, Any]:
        """Its fields for programs."""
        return {name: getattr(self, name) for name in self.__slots__}


def add_to(app: typer.Typer) -> None:
    """Make the command known."""
    app.command("scan")(scan)


def scan(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[PATH]...", help="Files or folders; what would be sent, if left out.", show_default=False
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what is let through: less sure, or allowed.")] = False,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="FINGERPRINT", help="Let this one through from now on.", show_default=False),
    ] = None,
    project: ProjectDir = Path(),
    as_json: AsJson = False,
) -> None:
    """Show which credentials your memory holds, before anything is sent; never their values."""
    from confide_proxy import outgoing
    from confide_proxy.secrets import fingerprints

    here: Here = context.obj
    if allow:
        _allow(here, allow, as_json)
        return
    passed = outgoing.Passed()
    texts = (
        outgoing.of_files([path.expanduser() for path in paths], here.config, passed)
        if paths
        else outgoing.of_project(here.paths, here.config, projects.identify(folder_of(project)), passed)
    )
    prints = fingerprints.load(here.paths.fingerprint_key)
    count = 0
    seen: list[Sight] = []
    for text in texts:
        count += 1
        seen += _sights(text, here.config.secrets, prints)
    held = [sight for sight in seen if sight.action != "allow"]
    shown = seen if everything else held
    if as_json:
        skipped = [{"path": path, "reason": reason} for path, reason in passed.named]
        print_json(
            {
                "texts": count,
                "findings": [sight.as_json() for sight in shown],
                "letThrough": len(seen) - len(held),
                "skipped": skipped,
            }
        )
    else:
        _show(shown, passed.named)
        more = 0 if everything else len(seen) - len(held)
        err.print(
            f"{_counted(held)} in {count:,} {'text' if count == 1 else 'texts'}{_let_through(more)}", markup=False
        )
    if held:
        raise typer.Exit(FOUND)


def _allow(here: Here, given: list[str], as_json: bool) -> None:
    from confide_proxy.secrets import allow_list
    from confide_proxy.secrets.policy import is_fingerprint

    given = [each.strip().lower() for each in given]
    if not all(is_fingerprint(each) for each in given):
        raise typer.BadParameter("a fingerprint has 24 hex digits, as confide scan prints them", param_hint="--allow")
    added = [each for each in dict.fromkeys(given) if allow_list.add(here.paths.config, each)]
    if as_json:
        print_json({"allowed": added, "file": str(here.paths.config)})
    else:
        what = ", ".join(added) if added else "nothing: it was allowed already"
        out.print(f"allowed in {here.paths.config}: {what}", markup=False)


def _sights(text: Outgoing, policy: Policy, prints: Fingerprints) -> Iterator[Sight]:
    from confide_proxy.secrets.detector import scan as find
    from confide_proxy.secrets.standins import outside

    line, behind = text.line, 0
    for finding in outside(text.text, find(text.text)):
        if not text.is_one_line:
            line += text.text.count("\n", behind, finding.start)
            behind = finding.start
        yield _sight(text, line, finding, policy, prints)


def _sight(text: Outgoing, line: int, finding: Finding, policy: Policy, prints: Fingerprints) -> Sight:
    fingerprint = prints.of(finding.kind, text.text[finding.start : finding.end])
    action = policy.action(text.source, finding.confidence, fingerprint)
    return Sight(
        path=text.path,
        line=line,
        source=text.source,
        kind=finding.kind,
        confidence=finding.confidence,
        action=action,
        prefix=finding.prefix,
        length=finding.length,
        fingerprint=fingerprint,
    )


def _show(sights: list[Sight], passed: list[tuple[str, str]]) -> None:
    for sight in sights:
        out.print(
            f"{_plain(sight.path)}:{sight.line}  {sight.kind}  {sight.confidence:.2f}  {sight.action}  "
            f"{sight.prefix}… ({sight.length:,} characters)  {sight.fingerprint}",
            markup=False,
        )
    for path, reason in passed:
        err.print(f"skipped {_plain(path)}: {reason}", markup=False)


def _counted(held: list[Sight]) -> str:
    return "no credentials" if not held else "1 credential" if len(held) == 1 else f"{len(held):,} credentials"


def _let_through(more: int) -> str:
    if not more:
        return ""
    return (
        "; 1 more is let through (--all shows it)"
        if more == 1
        else f"; {more:,} more are let through (--all shows them)"
    )


def _plain(text: str) -> str:
    """A file's name may hold what a terminal would obey."""
    return "".join(c if c.isprintable() else "?" for c in text)
