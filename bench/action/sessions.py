"""Sessions of agents, made by script: failures that a note covers or not, and calls of every day.

A family is a failure as tools print it, with a note as people and agents write one; `{…}` are filled in for the note and for each time
that it happens: paths, numbers, times, hashes, hosts. Families are in `failures.json`: those of the first code, and those by which
later code was changed (`development`). Those in `fresh.json` were written when the code was done, and no code was changed by them.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_WORDS: Final = {
    "path": [
        "/home/ann/shop/src/app.py",
        "/srv/build/7f/main.ts",
        "C:\\\\work\\\\shop\\\\index.js",
        "/app/lib/db/pool.rb",
        "./pkg/api/x.go",
    ],
    "file": ["src/app.py", "web/main.ts", "lib/pool.rb", "pkg/api/handler.go", "crates/core/src/lib.rs"],
    "number": ["3", "17", "208", "4096", "65001"],
    "port": ["5432", "8010", "6379", "3000", "9200"],
    "time": ["2026-11-20T08:12:44Z", "2026-11-28 21:03:09.112", "10:02:51", "2026-12-01T00:00:00+01:00"],
    "hex": ["0x7ffd12ab", "3f9c12ab77de", "deadbeef01", "a94a8fe5ccb19ba6"],
    "host": ["localhost", "db.internal", "10.0.0.12", "redis-2.prod.example.org"],
    "ms": ["1203ms", "5000 ms", "12.7s"],
}

_FORMS: Final = json.loads(Path(__file__).with_name("failures.json").read_text("utf-8"))
_FORMS["fresh"] = json.loads(Path(__file__).with_name("fresh.json").read_text("utf-8"))
CAUTIONS: Final = [
    "never run `prisma migrate reset` against staging: it drops the data",
    "`terraform apply` only from the main branch, the state is shared",
    "`src/billing/tax.py`: round per line, never per invoice, because the law says so",
    "don't edit `web/src/generated/`, it comes from the schema",
    "`bin/ship` needs the VPN, otherwise it hangs",
    "always run `alembic upgrade head` before `pytest tests/db`",
    "`config/production.yaml` must not have secrets: they come from the vault",
    "decided: `Dockerfile` stays on Debian, Alpine broke the PDF fonts",
]
_BENIGN: Final = {
    "Bash": [
        "ls -la",
        "git status",
        "git diff --stat",
        "pytest -q tests/unit",
        "npm test",
        "cat README.md",
        "rg TODO src",
        "git log --oneline -5",
        "docker compose ps",
        "make",
        "npm run lint",
        "python scripts/x.py",
        "git add -A && git commit -m 'x'",
        "terraform plan",
        "prisma generate",
        "npx prisma migrate dev",
        "alembic history",
        "pnpm install",
        "cargo check",
        "go vet ./...",
        "kubectl get pods",
        "head -50 {file}",
        "sed -n 1,80p {file}",
    ],
    "Edit": [
        "{file}",
        "src/models/user.py",
        "web/src/app.tsx",
        "docs/api.md",
        "tests/test_x.py",
        "src/billing/invoice.py",
        "config/development.yaml",
        "package.json",
    ],
    "Write": ["src/new_{number}.py", "notes/{number}.md", "web/src/components/Card{number}.tsx"],
}
_OUTPUTS: Final = [
    "",
    "ok",
    "{number} passed in {ms}",
    "On branch main\nnothing to commit",
    "{file}:{number}: TODO: rename",
    "Compiling shop v0.{number}.0",
    "warning: unused variable: `x`\n --> {path}:{number}",
    "0 errors, {number} warnings",
    "total {number}\n-rw-r--r-- 1 ann ann {number} {file}",
    "def fails():\n    raise ValueError('no such user')",
    "{time} INFO started on port {port}",
    "| id | error |\n| {number} | none |",
]
_ALIKE: Final = [
    ("cat docs/troubleshooting.md", "## Known\n\n{failure}\n\nSee below."),
    ("grep -rn error docs src", "docs/known.md:{number}:{failure}\n{file}:{number}: raise ValueError"),
    ("rg -n 'Error' logs/app.log | tail -20", "{number}:{time} {failure}"),
    ("git log --oneline -5", "4f2a1c9 fix: {failure}\n9b1d22e feat: carts"),
    ("git show HEAD", "commit 4f2a1c9\n\n    Handle this\n\n+    # {failure}\n+    retry()"),
    ("docker compose logs db --tail 20", "db-1  | {time} {failure}"),
    ("kubectl logs deploy/api --since 1h", "{time} {failure}\n{time} INFO ready"),
    ("journalctl -u shop -n 20", "Nov 20 10:02:51 heron shop[{number}]: {failure}"),
    ("sed -n 1,40p tests/fixtures/errors.txt", "{failure}"),
    ("tail -n 30 build.log", "{failure}\nbuild stopped"),
    ("jq .message report.json", '"{failure}"'),
    (
        "pytest -v tests/errors",
        "tests/errors/test_text.py::test_shows_{failure} PASSED\n{failure}\n===== {number} passed in {ms} =====",
    ),
    (
        "npm test",
        "  console.error\n    {failure}\n\n  ✓ tells the user (3 ms)\n\nTests:       {number} passed, {number} total\nTime: {ms}",
    ),
    ("npx vitest run", " ✓ src/errors.test.ts > says {failure}\n\n Tests  {number} passed ({number})"),
    (
        "cargo test errors",
        "test errors::{failure} ... ok\n\ntest result: ok. {number} passed; 0 failed; 0 ignored; finished in {ms}",
    ),
    (
        "go test -v ./errors",
        "=== RUN   TestSays\n    log.go:{number}: {failure}\n--- PASS: TestSays (0.00s)\nPASS\nok  \tshop/errors\t{ms}",
    ),
    ("make docs", "{failure} is described in known.md\nDone in {ms}"),
    ("python scripts/count_errors.py", "{number} times: {failure}\n{number} times: others"),
    ("curl -s http://localhost:{port}/errors", '[{{"id": {number}, "message": "{failure}"}}]'),
    ("sqlite3 app.db 'select * from events'", "{number}|{time}|{failure}"),
    ("gh issue view {number}", "title: {failure}\nstate: OPEN\n--\nSince yesterday, see the log."),
    ("npm run build", "warning in ./src/x.ts\n{failure} (ignored)\n\n✓ built in {ms}\n0 errors"),
]
"""Calls that worked, whose output has the message of a failure."""
_SHARE: Final = 0.2
"""Share of them among all calls."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed call. `note`: the text of the entry that covers it; "" for none."""

    command: str
    output: str
    note: str


def filled(text: str, chance: random.Random) -> str:
    """The text with a word in the place of each `{…}`."""
    found = re.sub(r"\{(path|file|number|port|time|hex|host|ms)\}", lambda name: chance.choice(_WORDS[name[1]]), text)
    return found.replace("{{", "{").replace("}}", "}")


def failures(chance: random.Random, count: int, *, of: str) -> list[Failure]:
    """Covered failures `of` a list of families, each with noise before and after it."""
    families = _FORMS[of]
    found = []
    for number in range(count):
        form = families[number % len(families)]
        command, output, note = form["command"], form["output"], form["note"]
        before = "\n".join(filled(chance.choice(_OUTPUTS), chance) for _ in range(chance.randrange(12)))
        after = "\n".join(filled(chance.choice(_OUTPUTS), chance) for _ in range(chance.randrange(6)))
        colour = chance.random() < 0.2
        said = filled(output, chance)
        found.append(
            Failure(
                command,
                f"{before}\n{chr(27) + '[31m' if colour else ''}{said}{chr(27) + '[0m' if colour else ''}\n{after}",
                filled(note, chance),
            )
        )
    return found


def uncovered(chance: random.Random, count: int) -> list[Failure]:
    """Failures that no note covers."""
    forms = [_FORMS["uncovered"][number % len(_FORMS["uncovered"])] for number in range(count)]
    return [Failure(filled(form["command"], chance), filled(form["output"], chance), "") for form in forms]


def benign(chance: random.Random, count: int) -> list[tuple[str, str, str]]:
    """Calls of every day: tool, command or path, output. Some outputs look like failures that a note covers."""
    found = []
    messages = [
        line
        for of in ("covered", "development", "fresh")
        for form in _FORMS[of]
        for line in form["output"].split("\n")
        if line.strip()
    ]
    for _ in range(count):
        if chance.random() < _SHARE:
            command, output = chance.choice(_ALIKE)
            message = filled(chance.choice(messages).strip(), chance)
            found.append(("Bash", filled(command, chance), filled(output, chance).replace("{failure}", message)))
            continue
        tool = chance.choice(["Bash", "Bash", "Edit", "Write"])
        found.append((tool, filled(chance.choice(_BENIGN[tool]), chance), filled(chance.choice(_OUTPUTS), chance)))
    return found
