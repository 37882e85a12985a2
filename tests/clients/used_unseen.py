"""Sealed values that a real Claude Code uses: `npm publish`, `docker login`, `psql` and `git push`, against services on loopback.

Each service must see the right value, and nothing that an agent, its client, the model or Confide keeps may have it, in any usual
encoding. The first command is asked about in the client; the others are allowed by a rule.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

import psycopg
from tests.clients.answered import answering
from tests.clients.models import Step
from tests.clients.recorded import Scene, bash
from tests.clients.stand_ins import StandIns, standing_in
from tests.clients.trial import BIN, Trial
from tests.support.daemon import postgres

TOKEN: Final = "npm_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
PASSWORD: Final = "xK7m+Q2v/R9tLw4zz&Q"
"""Made up; with characters that encodings change."""
NAMES: Final = {"npm-token": "registry", "password": "password"}
ALLOWED: Final = ("Bash(confide run *)", "Bash(GIT_TRACE_CURL=1 *)", "Bash(git *)")
OWN_STORE: Final = ".docker/config.json"
"""Where `docker login` itself keeps what it was given, in the person's home."""
_HELPER: Final = "!f() { echo username=me; echo password=$TOKEN; }; f"


def forms(value: str) -> Iterator[bytes]:
    """A value as it is and in usual encodings, also with a user's name before it."""
    for text in (value, f"me:{value}", f"_authToken={value}"):
        data = text.encode()
        yield data
        yield quote(text, safe="").encode()
        yield json.dumps(text)[1:-1].encode()
        yield from (data.hex().encode(), data.hex().upper().encode())
        for shift in range(3):  # without the ends, which depend on what is beside it
            for encode in (base64.b64encode, base64.urlsafe_b64encode):
                yield encode(b"\0" * shift + data)[4 if shift else 0 : -4]


def kept(roots: Sequence[Path]) -> dict[Path, bytes]:
    """The bytes of each file below these folders."""
    return {file: file.read_bytes() for root in roots for file in root.rglob("*") if file.is_file()}


def _steps(port: int, database: int) -> list[Step]:
    publish = "confide run --env NPM_TOKEN=secret:registry -- npm publish --loglevel silly"
    push = f"confide run --env TOKEN=secret:registry -- git -c credential.helper='{_HELPER}' push --verbose"
    host = f"-h 127.0.0.1 -p {database} -U me -d postgres"
    return [
        bash(publish),
        Step("memory_search", {"query": "registry token"}),
        bash(publish),
        bash(f"confide run --stdin secret:password -- docker --debug login 127.0.0.1:{port} -u me --password-stdin"),
        bash(f"confide run --env PGPASSWORD=secret:password -- psql {host} -c 'select current_user'"),
        bash(f"GIT_TRACE_CURL=1 GIT_TRACE_REDACT=0 {push} http://127.0.0.1:{port}/git/shop.git HEAD:refs/heads/main"),
        Step(text="All four are done."),
    ]


def four_commands(trial: Trial) -> None:
    """Claude Code runs them, with output as loud as they can be."""
    missing = [program for program in ("npm", "docker", "psql", "git") if shutil.which(program) is None]
    if missing or postgres.programs() is None:
        print(f"skip secrets: {', '.join(missing) or 'PostgreSQL'} is not here")
        return
    repositories = trial.root / "repositories"
    subprocess.run(["git", "init", "-q", "--bare", str(repositories / "shop.git")], check=True)
    subprocess.run(["git", "-C", str(repositories / "shop.git"), "config", "http.receivepack", "true"], check=True)
    services = StandIns(repositories, TOKEN, PASSWORD)
    with ExitStack() as stack:
        stack.enter_context(standing_in(services))
        database = stack.enter_context(_with_password())
        scene = stack.enter_context(_scene(trial, services.port))
        asked = scene.home.folder / "asked.jsonl"
        answering(scene.home.folder, asked, choice=0)
        trial.check("secrets: the database refuses another password", not _is_let_in(database, "another"))
        scene.claude("go on", *_steps(services.port, database.port), asked=asked, allowed=ALLOWED)
        said = "\n".join(scene.lines)
        check = trial.check
        questions = asked.read_text(encoding="utf-8").splitlines() if asked.exists() else []
        check("secrets: npm publish was asked about once", len(questions) == 1, f"{len(questions)} times")
        is_published = services.published == ["/till"]
        check("secrets: npm publish had the token", is_published, "" if is_published else said)
        package = said.rpartition("Tarball Contents")[2].partition("Tarball Details")[0]
        check("secrets: memory is no part of the package", "memory/" not in package)
        check(
            "secrets: docker login had the password", f"me:{PASSWORD}" in services.shown and "Login Succeeded" in said
        )
        check("secrets: psql had the password", "current_user" in said and "(1 row)" in said)
        pushed = subprocess.run(
            ["git", "-C", repositories / "shop.git", "log", "--format=%s", "main"], capture_output=True
        )
        check("secrets: git push had the token", pushed.stdout == b"First\n", pushed.stderr.decode())
        uses = json.loads(scene.confide("audit", "--json"))
        check("secrets: the audit has four uses", [one["approved"] for one in uses].count("proxy.toml") == 3, str(uses))
        _nowhere(trial, scene)


def _nowhere(trial: Trial, scene: Scene) -> None:
    """No value is in the requests of the model, in the client's folder, in logs, in Confide's folders or in the project."""
    scene.home.run([BIN / "confide", "stop"], scene.environment)
    files = kept([scene.home.folder, scene.project])
    own = scene.home.folder / OWN_STORE
    files[Path("requests of the model")] = json.dumps(scene.requests, ensure_ascii=False).encode()
    files[Path("what was recorded")] = "\n".join(scene.lines).encode()
    looked_for = {form for value in (TOKEN, PASSWORD) for form in forms(value)}
    found = {str(file) for file, data in files.items() if file != own and any(form in data for form in looked_for)}
    transcripts = [file for file in files if file.suffix == ".jsonl" and "projects" in file.parts]
    trial.check("secrets: there are transcripts to look into", bool(transcripts))
    told = f"{len(files)} files, {sum(map(len, files.values())):,} bytes, {len(looked_for)} forms"
    trial.check("secrets: no value is anywhere but with docker itself", not found, f"{told} {sorted(found) or ''}")
    stores = own.exists() and any(form in files[own] for form in looked_for)
    trial.check("secrets: what docker keeps is found there, so the search finds", stores)


def _is_let_in(database: postgres.Postgres, password: str) -> bool:
    url = f"postgresql://me:{quote(password, safe='')}@127.0.0.1:{database.port}/postgres"
    try:
        return database.sql("SELECT 1", url=url) == [(1,)]
    except psycopg.OperationalError:
        return False


@contextmanager
def _with_password() -> Iterator[postgres.Postgres]:
    """A PostgreSQL that asks the role `me` for its password."""
    with postgres.server() as found:
        found.sql(f"CREATE ROLE me LOGIN PASSWORD '{PASSWORD}'")
        rules = found.files / "pg_hba.conf"
        rules.write_text(f"host all me 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        found.sql("SELECT pg_reload_conf()")
        yield found


@contextmanager
def _scene(trial: Trial, port: int) -> Iterator[Scene]:
    """A person's project, whose two sealed values have names; a rule allows three of the commands."""
    npmrc = f"//127.0.0.1:{port}/:_authToken=${{NPM_TOKEN}}\nregistry=http://127.0.0.1:{port}/\n"
    scene = Scene(trial, "secrets", {"package.json": '{"name": "till", "version": "1.0.0"}\n', ".npmrc": npmrc})
    identity = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org")
    for words in (("add", "package.json"), (*identity, "commit", "-q", "-m", "First")):
        subprocess.run(["git", "-C", str(scene.project), *words], check=True)
    scene.confide("quickstart")
    scene.confide("setup", "claude-code", "--write", "--hooks", "--user")
    try:
        for text in (f"the token of the registry is {TOKEN}", f"DB_PASSWORD={PASSWORD} is for the database"):
            store = [str(BIN / "confide"), "store", "-"]
            subprocess.run(
                store, cwd=scene.project, env=scene.environment, input=text.encode(), capture_output=True, check=True
            )
        for secret in json.loads(scene.confide("secrets", "ls", "--json")):
            scene.confide("secrets", "name", NAMES[secret["kind"]], secret["id"][:8])
        settings = scene.home.folder / ".config/confide/proxy.toml"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text('[run]\nallow = { password = ["docker", "psql"], registry = ["git"] }\n')
        yield scene
    finally:
        scene.home.run([BIN / "confide", "stop"], scene.environment)


USED: Final[dict[str, tuple[Callable[[Trial], None], ...]]] = {"claude": (four_commands,)}
