"""Repositories on the runner: fetched by this user's git, without what the repository, its server or the surroundings could add to that."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import threading
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.support.runs import Runs, git, repository

from confide_night.errors import RepositoryError
from confide_night.runner.mirrors import Mirror, apart
from confide_night.runner.settings.recipes import RunLimits
from confide_night.runner.trial import findings
from confide_proxy.errors import ConfigError

PASSWORD = "DEPLOY-PASSWORD-77@:/%"
ENCODED = "DEPLOY-PASSWORD-77%40%3A%2F%25"


def mirror_of(url: str, folder: Path) -> Mirror:
    return Mirror(folder / "repositories", "app", url, RunLimits(free_mib=1))


def head(place: Path) -> str:
    return git(place, "rev-parse", "HEAD").strip()


@contextmanager
def served(folder: Path, user: str, password: str) -> Iterator[tuple[str, list[str]]]:
    """A repository over HTTP that takes a password; and the command lines that were seen on the machine meanwhile."""
    seen: list[str] = []
    expected = f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    seen.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                except OSError:
                    continue
            if self.headers.get("authorization") != expected:
                self.send_response(401)
                self.send_header("www-authenticate", 'Basic realm="x"')
                self.send_header("content-length", "0")
                self.end_headers()
                return
            super().do_GET()

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home, with nothing in it."""
    found = tmp_path / "home"
    found.mkdir()
    monkeypatch.setenv("HOME", str(found))
    for name in [*os.environ]:
        if name.startswith(("GIT_", "XDG_")):
            monkeypatch.delenv(name)
    return found


def web(tmp_path: Path) -> Path:
    """A folder with a repository as a plain server of files has it."""
    repository(tmp_path / "source")
    folder = tmp_path / "web"
    folder.mkdir()
    git(folder, "clone", "-q", "--bare", str(tmp_path / "source"), "app.git")
    git(folder / "app.git", "update-server-info")
    return folder


async def test_a_password_in_an_address_stands_in_no_file_and_no_list_of_processes(home: Path, tmp_path: Path) -> None:
    """A sandbox sees the mirror, and other users of the machine see who was started with what."""
    with served(web(tmp_path), "bot", PASSWORD) as (place, seen):
        mirror = mirror_of(f"http://bot:{ENCODED}@{place}/app.git", tmp_path)
        assert await mirror.fetch() == head(tmp_path / "source")
        assert await mirror.fetch() == head(tmp_path / "source")
    assert seen
    assert not [line for line in seen if "DEPLOY" in line]
    for path in (tmp_path / "repositories").rglob("*"):
        if path.is_file():
            assert b"DEPLOY" not in path.read_bytes(), path
            assert place.encode() not in path.read_bytes(), path


async def test_a_wrong_password_is_told_without_it(home: Path, tmp_path: Path) -> None:
    with served(web(tmp_path), "bot", "another") as (place, _), pytest.raises(RepositoryError) as found:
        await mirror_of(f"http://bot:{ENCODED}@{place}/app.git", tmp_path).fetch()
    assert "DEPLOY" not in str(found.value)
    assert not (home / ".git-credentials").exists()


async def test_a_name_in_an_address_is_looked_up_with_this_users_own_helper(home: Path, tmp_path: Path) -> None:
    helper = '!f() { test "$1" = get && cat > asked && echo password=of-the-helper; }; f'
    (home / ".gitconfig").write_text('[credential]\n\thelper = "' + helper.replace('"', '\\"') + '"\n')
    with served(web(tmp_path), "bot", "of-the-helper") as (place, _):
        assert await mirror_of(f"http://bot@{place}/app.git", tmp_path).fetch() == head(tmp_path / "source")
    assert "username=bot" in (tmp_path / "repositories" / "asked").read_text()


@pytest.mark.parametrize("url", ["ssh://bot:word@host/app.git", "git://bot:word@host/app.git"])
def test_a_password_where_it_would_be_shown_is_not_taken(runs: Runs, url: str) -> None:
    with pytest.raises(ConfigError, match="wrong value"):
        runs.settings('kind = "command"\ncommand = ["true"]', more=f'other = "{url}"\n')


async def test_a_password_in_an_address_is_named_by_a_look_at_the_runner(runs: Runs) -> None:
    more = f'one = "https://bot:{ENCODED}@host.example/x.git"\nother = "https://host.example/x.git"\n'
    settings = runs.settings('kind = "command"\ncommand = ["true"]', more=more)
    found = [each async for each in findings(settings, runs.folder) if each.name.startswith("repository")]
    assert [(each.name, each.is_good) for each in found] == [("repository one", None)]
    assert "DEPLOY" not in str(found)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("https://bot:a%40b@host:8443/x.git", ("https://host:8443/x.git", "bot", "a@b")),
        ("https://TOKEN@host/x.git", ("https://host/x.git", "TOKEN", "")),
        ("https://:TOKEN@host/x.git", ("https://host/x.git", "", "TOKEN")),
        ("https://a@b:c@host/x.git", ("https://host/x.git", "a@b", "c")),
        ("https://host/@x.git", ("https://host/@x.git", "", "")),
        ("git@host:x.git", ("git@host:x.git", "", "")),
        ("/a@b:c/x.git", ("/a@b:c/x.git", "", "")),
    ],
)
def test_an_address_is_taken_apart(url: str, parts: tuple[str, str, str]) -> None:
    assert apart(url) == parts


async def test_a_sandbox_sees_no_settings_of_a_mirror(runs: Runs) -> None:
    result = await runs.command("ls -A /task-mirror | sort | tr '\\n' ' '; cat /task-mirror/config")
    assert result.state == "succeeded"
    assert str(runs.repository) not in runs.run.log.redact()
    assert result.text == "HEAD config objects refs [core]\n\trepositoryformatversion = 0\n\tbare = true\n"


async def test_a_mirror_of_an_older_version_is_made_again(home: Path, tmp_path: Path) -> None:
    """Those had the address in their settings."""
    source = repository(tmp_path / "source")
    mirror = mirror_of(str(source), tmp_path)
    (tmp_path / "repositories").mkdir(0o700)
    git(tmp_path, "clone", "-q", "--mirror", str(source), str(mirror.path))
    assert str(source) in (mirror.path / "config").read_text()
    assert await mirror.fetch() == head(source)
    assert str(source) not in (mirror.path / "config").read_text()


async def test_a_mirror_follows_its_repository(home: Path, tmp_path: Path) -> None:
    """Its branches, also those that end; its default branch; and a HEAD at none."""
    source = repository(tmp_path / "source")
    mirror = mirror_of(str(source), tmp_path)
    git(source, "branch", "old")
    await mirror.fetch()
    git(source, "checkout", "-q", "-b", "next")
    git(source, "commit", "-q", "--allow-empty", "-m", "second")
    git(source, "branch", "-D", "old")
    assert await mirror.fetch() == head(source)
    assert git(mirror.path, "symbolic-ref", "HEAD").strip() == "refs/heads/next"
    assert "old" not in git(mirror.path, "branch")
    git(source, "checkout", "-q", "--detach")
    git(source, "commit", "-q", "--allow-empty", "-m", "third")
    assert await mirror.fetch() == head(source)
    assert await mirror_of(str(source), tmp_path / "anew").fetch() == head(source)


async def test_a_repository_of_long_hashes_is_mirrored_too(home: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    git(tmp_path, "init", "-q", "--object-format=sha256", str(source))
    git(source, "commit", "-q", "--allow-empty", "-m", "first")
    mirror = mirror_of(str(source), tmp_path)
    git(source, "checkout", "-q", "--detach")
    found = await mirror.fetch()
    assert (found, len(found)) == (head(source), 64)
    assert "objectFormat = sha256" in await mirror.settings()


async def test_an_empty_repository_is_told(home: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", str(tmp_path / "source"))
    with pytest.raises(RepositoryError, match="has no commit"):
        await mirror_of(str(tmp_path / "source"), tmp_path).fetch()


async def test_a_branch_is_the_commit_that_was_checked_or_none(home: Path, tmp_path: Path) -> None:
    source = repository(tmp_path / "source")
    mirror = mirror_of(str(source), tmp_path)
    base = await mirror.fetch()
    work = tmp_path / "work"
    git(tmp_path, "clone", "-q", str(source), str(work))
    git(work, "commit", "-q", "--allow-empty", "-m", "told")
    told = head(work)
    git(work, "commit", "-q", "--allow-empty", "-m", "another")
    git(work, "bundle", "create", "-q", str(tmp_path / "bundle"), f"{base}..HEAD")
    for commit in (told, base, "0" * 40, ""):
        with pytest.raises(RepositoryError, match="not the commit that was checked"):
            await mirror.keep(tmp_path / "bundle", "slot", commit)
    assert git(mirror.results, "for-each-ref") == ""
    assert await mirror.keep(tmp_path / "bundle", "slot", head(work)) == "confide/slot"
    assert git(mirror.results, "rev-parse", "confide/slot").strip() == head(work)
    await mirror.push("slot", head(work))
    assert git(source, "rev-parse", "confide/slot").strip() == head(work)


# What runs outside of every sandbox: git, with this user's rights


async def test_no_hook_runs_outside(home: Path, tmp_path: Path) -> None:
    """Hooks of the user's own settings and templates are for trees that they work in: these repositories are strangers'."""
    planted = tmp_path / "planted"
    hooks = home / "hooks"
    hooks.mkdir()
    for name in ("reference-transaction", "post-checkout", "pre-push", "pre-auto-gc", "update", "post-update"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch {planted}\n")
        (hooks / name).chmod(0o755)
    (home / "template").mkdir()
    (home / "template" / "hooks").symlink_to(hooks)
    source = repository(tmp_path / "source")
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(source), str(bare))
    for settings in (f"[core]\n\thooksPath = {hooks}\n", f"[init]\n\ttemplateDir = {home}/template\n"):
        (home / ".gitconfig").write_text(settings)
        mirror = mirror_of(str(bare), tmp_path / settings[1:5])
        base = await mirror.fetch()
        await mirror.fetch()
        work = tmp_path / settings[1:5] / "work"
        git(tmp_path, "clone", "-q", "--template=", str(source), str(work))
        git(work, "-c", "core.hooksPath=/dev/null", "commit", "-q", "--allow-empty", "-m", "second")
        git(work, "bundle", "create", "-q", str(work / "bundle"), f"{base}..HEAD")
        planted.unlink(missing_ok=True)
        await mirror.keep(work / "bundle", settings[1:5], head(work))
        # What a push starts at the other end is the other end's; this one's is asked not to begin.
        (home / ".gitconfig").unlink()
        await mirror.push(settings[1:5], head(work))
        assert not planted.exists()


@pytest.mark.parametrize(
    "variables",
    [
        {"GIT_OBJECT_DIRECTORY": "elsewhere"},
        {"GIT_COMMON_DIR": "elsewhere"},
        {"GIT_INDEX_FILE": "elsewhere", "GIT_WORK_TREE": "elsewhere", "GIT_DIR": "elsewhere"},
        {"GIT_NAMESPACE": "elsewhere"},
        {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.sshCommand", "GIT_CONFIG_VALUE_0": "touch planted"},
        {"GIT_PROXY_COMMAND": "touch planted", "GIT_EXEC_PATH": "elsewhere"},
        {"GIT_TRACE": "{}/traced", "GIT_TRACE_CURL": "{}/traced"},
    ],
    ids=lambda each: next(iter(each)),
)
async def test_gits_own_variables_of_the_surroundings_count_for_nothing(
    home: Path, tmp_path: Path, variables: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They say which repository is meant, which programs are started, and where what is said goes."""
    source = repository(tmp_path / "source")
    expected = head(source)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(tmp_path))
    mirror = mirror_of(str(source), tmp_path)
    assert await mirror.fetch() == expected
    for name in variables:
        monkeypatch.delenv(name)
    assert git(mirror.path, "rev-parse", "HEAD").strip() == expected
    assert git(mirror.path, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main"]
    assert not [*tmp_path.rglob("elsewhere"), *tmp_path.rglob("planted"), *tmp_path.rglob("traced")]


async def test_no_transport_but_the_known_ones_is_used(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server, or settings, can lead an address on to another scheme, and for each of those git starts a program of that name."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git-remote-evil").write_text(f"#!/bin/sh\ntouch {tmp_path}/planted\n")
    (programs / "git-remote-evil").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    (home / ".gitconfig").write_text('[url "evil://there/"]\n\tinsteadOf = https://here.invalid/\n')
    with pytest.raises(RepositoryError, match="cannot clone"):
        await mirror_of("https://here.invalid/app.git", tmp_path).fetch()
    assert not (tmp_path / "planted").exists()
    # The program is one that git would start.
    with contextlib.suppress(subprocess.CalledProcessError):
        git(tmp_path, "ls-remote", "evil://there/app.git")
    assert (tmp_path / "planted").exists()
