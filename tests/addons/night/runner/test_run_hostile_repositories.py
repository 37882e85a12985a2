"""Repositories and agents that mean harm: 0 effects outside of the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import stat
from pathlib import Path

import pytest
from tests.support.runs import Runs, git, repository

from confide_crypto.errors import ConfideError
from confide_night.errors import RepositoryError
from confide_night.runner.run import _OF_CI


async def work(runs: Runs, script: str, more: str = "") -> tuple[str, str]:
    """What becomes of a script that runs in a clone, and what it has printed."""
    result = await runs.command(script, recipe=more)
    return result.state, runs.run.log.redact()


async def test_programs_that_git_would_start_are_started_in_the_sandbox_alone(runs: Runs) -> None:
    """A tree's own settings name programs (fsmonitor, hooks, filters, an editor, a signer): git runs them, and only in there."""
    planted = runs.folder / "planted"
    script = f"""
    cat > /task/evil <<'END'
#!/bin/sh
touch {planted} 2> /dev/null && echo ESCAPED
touch /task/started
cat
END
    chmod +x /task/evil
    mkdir -p .git/hooks
    for hook in pre-commit post-commit post-checkout pre-push reference-transaction; do cp /task/evil .git/hooks/$hook; done
    git config core.hooksPath .git/hooks
    git config core.fsmonitor /task/evil
    git config filter.evil.clean /task/evil; git config filter.evil.smudge /task/evil; git config filter.evil.required true
    git config diff.external /task/evil; git config core.pager /task/evil; git config core.editor /task/evil
    git config gpg.program /task/evil; git config commit.gpgsign true; git config core.sshCommand /task/evil
    git config credential.helper /task/evil; git config uploadpack.packObjectsHook /task/evil
    printf '* filter=evil\\n' > .gitattributes; echo two > b.txt
    """
    result = await runs.command(script)
    assert not planted.exists()
    assert (runs.run.folder / "work" / "started").exists()  # so it was started, in there
    # What came out is objects alone; whoever takes them starts nothing of it.
    if result.bundle is not None:
        await runs.mirror.keep(result.bundle, "slot")
    assert not planted.exists()


async def test_a_repository_of_links_leads_nowhere(runs: Runs) -> None:
    """Links out of the clone, in what is bundled, and in the bundle's own place."""
    canary = runs.folder / "canary"
    canary.write_text("outside")
    script = f"""
    ln -s {canary} link; ln -s / root; mkdir d; ln -s ../../../../../../etc/passwd d/up
    cat link root{canary} 2> /dev/null && echo ESCAPED
    echo x > link 2> /dev/null; rm -rf root/*  2> /dev/null
    rm -f root; rm -rf /task-out; ln -s {runs.folder} /task/out; exit 0
    """
    _, printed = await work(runs, script)
    assert "ESCAPED" not in printed
    assert canary.read_text() == "outside"
    result = runs.run
    await result.tidy()
    assert canary.read_text() == "outside"


REPLACING = """
cat > /task/evil <<'END'
#!/bin/sh
if [ ! -p /task/wait ]; then
  mkfifo /task/wait
  setsid sh -c 'while :; do
    exec 3> /task/wait
    if [ -f /task-out/result.bundle ] && [ ! -f /task/done ]; then : > /task/done; {}; fi
    exec 3>&-
  done' > /dev/null 2>&1 < /dev/null &
  printf '[include]\\n\\tpath = /task/wait\\n' >> /task/tree/.git/config
fi
cat
END
chmod +x /task/evil; git config filter.evil.clean /task/evil; mkdir -p .git/info
echo '* filter=evil' > .git/info/attributes; echo GOOD > b.txt
"""
"""A clean filter that leaves a process, which does something behind the bundle: a git that reads its settings waits for it (a pipe)."""


@pytest.mark.parametrize("how", ["ln -sf {} /task-out/result.bundle", "ln /task-out/result.bundle /task-out/twin"])
async def test_a_bundle_that_is_no_plain_file_is_not_taken(runs: Runs, how: str) -> None:
    """The last step of a run starts git in a tree that its agent has written, and with it the tree's programs: they reach its output."""
    target = runs.folder / "target"
    target.write_text("mine")
    result = await runs.command(REPLACING.format(how.format(target)))
    assert (result.state, result.bundle) == ("failed", None)
    assert result.reason == "what it has changed is too large, or no plain file"
    assert (runs.run.folder / "work" / "done").exists()
    assert target.read_text() == "mine"


# What is checked, what is told, and what goes on are one commit

CHECK = 'check = ["grep", "-qx", "GOOD", "b.txt"]\n'


async def test_what_is_checked_is_what_the_commit_has(runs: Runs) -> None:
    """A filter of the tree's own settings puts something else into it than stands in the tree."""
    script = """
    printf '#!/bin/sh\\nsed s/GOOD/BACKDOOR/\\n' > /task/evil; chmod +x /task/evil
    git config filter.evil.clean /task/evil; git config filter.evil.smudge 'sed s/BACKDOOR/GOOD/'
    echo 'b.txt filter=evil' > .gitattributes; echo GOOD > b.txt
    """
    result = await runs.command(script, recipe=CHECK)
    assert (result.state, result.checked, result.bundle, result.patch) == ("failed", False, None, None)
    assert result.commit == ""


@pytest.mark.parametrize(
    ("script", "check"),
    [
        ("echo /b.txt > .git/info/exclude; echo GOOD > b.txt; touch c", "test -f b.txt"),
        ("echo '/b.txt' > .gitignore; echo GOOD > b.txt; touch c", "test -f b.txt"),
        (
            "git commit -q --allow-empty -m x; git update-index --skip-worktree a.txt; echo GOOD > a.txt",
            "grep GOOD a.txt",
        ),
        (
            "echo GOOD > b.txt; git add b.txt; git update-index --assume-unchanged a.txt; echo GOOD > a.txt",
            "grep GOOD a.txt",
        ),
        ("touch b.txt; git config user.said GOOD", "git config user.said | grep GOOD"),
        ("touch b.txt; touch /task/beside", "test -f /task/beside"),
        ("touch b.txt; git stash -q -u; echo GOOD > a.txt; git stash -q; touch b", "git stash show -p | grep GOOD"),
        (
            "git init -q inner; echo GOOD > inner/b.txt; git -C inner add .; git -C inner commit -qm x",
            "test -f inner/b.txt",
        ),
    ],
    ids=["excluded", "ignored", "skipped", "assumed", "settings", "beside", "stash", "a repository within"],
)
async def test_what_stands_beside_the_commit_proves_nothing(runs: Runs, script: str, check: str) -> None:
    result = await runs.command(script, recipe=f'check = ["sh", "-c", "{check}"]\n')
    assert (result.state, result.checked, result.bundle) == ("failed", False, None), runs.run.log.redact()


async def test_a_bundle_of_another_commit_than_is_told_is_not_taken(runs: Runs) -> None:
    """Made before, and put in the place of the right one behind its making."""
    before = """
    echo OTHER > b.txt; git add b.txt; git commit -q -m other; git bundle create -q /task/other HEAD~1..HEAD
    git reset -q --hard HEAD~1
    """
    result = await runs.command(before + REPLACING.format("cp /task/other /task-out/result.bundle"), recipe=CHECK)
    assert (result.state, result.bundle) == ("failed", None)
    assert result.reason == "what it has changed is not the commit that it reports"
    assert (runs.run.folder / "work" / "done").exists()


async def test_a_patch_is_that_of_the_commit(runs: Runs) -> None:
    """Whatever the tree says of how differences are shown."""
    script = """
    git config diff.external /bin/true; git config diff.evil.textconv 'echo NOTHING'; git config diff.noprefix true
    echo '* diff=evil' > .git/info/attributes; git config color.diff always; echo two > a.txt
    """
    result = await runs.command(script, recipe='check = ["grep", "-q", "two", "a.txt"]\n')
    assert result.state == "succeeded"
    assert result.bundle
    assert result.patch
    git(runs.repository, "apply", "--check", str(result.patch))
    assert result.patch.read_text().endswith("@@ -1 +1 @@\n-one\n+two\n")
    branch = await runs.mirror.keep(result.bundle, "slot", result.commit)
    assert git(runs.mirror.results, "rev-parse", branch).strip() == result.commit
    assert git(runs.mirror.results, "show", f"{branch}:a.txt") == "two\n"


async def test_where_nothing_was_changed_the_commit_it_began_with_is_checked(runs: Runs) -> None:
    result = await runs.command("touch /task/beside", recipe='check = ["grep", "-q", "one", "a.txt"]\n')
    assert (result.state, result.checked, result.notes) == ("succeeded", True, ["nothing was changed"])


# What a forge would run behind a push

OF_CI = [
    *(".github/workflows/release.yml", ".github/actions/x/action.yml", ".gitlab-ci.yml", ".gitlab/ci/x.yml"),
    *(".forgejo/workflows/x.yml", ".gitea/workflows/x.yml", ".circleci/config.yml", ".travis.yml", ".drone.yml"),
    *(".woodpecker.yml", ".woodpecker/x.yml", ".buildkite/pipeline.yml", ".cirrus.yml", ".builds/x.yml", ".build.yml"),
    *(".semaphore/semaphore.yml", ".azure-pipelines/x.yml", ".a-new-one.yml", "Jenkinsfile", "jenkinsfile"),
    *("azure-pipelines.yml", "bitbucket-pipelines.yml", "appveyor.yml", "buildspec.yml", "cloudbuild.yaml"),
    *("Jenkinsfile.release", "azure-pipelines-nightly.yml", "buildspec_deploy.yml", "cloudbuild.staging.yaml"),
    *("netlify.toml", "vercel.json", "amplify.yml", "render.yaml", "wrangler.jsonc", "railway.toml", "heroku.yml"),
    *("ci_scripts/ci_post_clone.sh", "buildkite.yml", "buildkite/pipeline.yml", "zuul.d/jobs.yaml", "readthedocs.yml"),
]
NOT_OF_CI = [
    "a.py",
    "src/vercel.json",
    "docs/Jenkinsfile",
    "deploy/ci_scripts/x.sh",
    "package.json",
    "docs/.hidden",
    "src/.github/workflows/x.yml",
    ".gitignore",
    ".editorconfig",
    "ci.md",
]


def test_files_that_a_forge_runs_are_known_by_their_names(tmp_path: Path) -> None:
    folder = repository(tmp_path / "repository", dict.fromkeys([*OF_CI, *NOT_OF_CI], "# nothing\n"))
    empty = git(folder, "hash-object", "-t", "tree", "/dev/null").strip()
    found = git(folder, "diff", "--name-only", "--no-renames", empty, "HEAD", "--", *_OF_CI)
    assert set(found.splitlines()) == set(OF_CI)


@pytest.mark.parametrize(
    ("script", "more", "may"),
    [
        ("mkdir -p .github/workflows; echo on > .github/workflows/x.yml", "", False),
        ("git mv a.txt .gitlab-ci.yml", "", False),
        ("ln -s /etc/passwd .travis.yml", "", False),
        ("echo x > .gitlab-ci.yml; git add .; git commit -qm x; git rm -q .gitlab-ci.yml; echo y > b.txt", "", True),
        ("mkdir -p .github/workflows; echo on > .github/workflows/x.yml", "push_ci = true\n", True),
        ("echo two > a.txt", "", True),
    ],
    ids=["new", "moved there", "a link", "taken back", "allowed", "something else"],
)
async def test_a_commit_that_changes_what_a_forge_runs_is_not_pushed(
    runs: Runs, script: str, more: str, may: bool
) -> None:
    """A forge runs what a pushed branch says, with the repository's secrets: nobody has to merge it."""
    result = await runs.command(script, recipe=f"push = true\n{more}")
    assert result.bundle
    assert (result.state, result.may_be_pushed) == ("succeeded", may)
    assert ("push_ci" in " ".join(result.notes)) != may


async def test_a_sandbox_has_no_way_out(runs: Runs) -> None:
    """The machine's network and sockets, its processes, its disk, further namespaces, and the kernel's switches."""
    abstract = f"\0confide-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listening, socket.create_server(("127.0.0.1", 0)) as port:
        listening.bind(abstract)
        listening.listen()
        inside = f"""
import os, socket, pathlib, ctypes, errno
def tried(name, work):
    try: print(name, 'ESCAPED', work())
    except (OSError, AssertionError) as error: print(name, 'held')
def said(result):
    if result < 0: raise OSError(ctypes.get_errno())
    return result
libc = ctypes.CDLL(None, use_errno=True)
tried('abstract', lambda: socket.socket(socket.AF_UNIX).connect({abstract!r}))
tried('loopback', lambda: socket.create_connection(('127.0.0.1', {port.getsockname()[1]}), 1))
tried('interfaces', lambda: [each for each in open('/proc/net/dev') if ':' in each and each.split(':')[0].strip() != 'lo'] or said(-1))
tried('raw', lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
tried('host process', lambda: os.kill({os.getpid()}, 0))
tried('ptrace', lambda: said(libc.ptrace(16, {os.getpid()}, 0, 0)))
tried('mount', lambda: said(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None)))
tried('userns', lambda: said(libc.unshare(0x10000000)))
tried('setuid', lambda: os.setuid(0))
tried('chroot', lambda: os.chroot('/tmp'))
tried('mknod', lambda: os.mknod('/tmp/disk', 0o60600, os.makedev(8, 0)))
def switches():
    # All files of /proc that open for writing; nothing is written to them.
    found = []
    for folder, _, names in os.walk('/proc/sys'):
        found += [os.path.join(folder, name) for name in names]
    found += ['/proc/sysrq-trigger', '/proc/self/oom_score_adj', '/proc/1/oom_score_adj', '/proc/irq/default_smp_affinity']
    opened = []
    for name in found:
        try: os.close(os.open(name, os.O_WRONLY | os.O_NONBLOCK)); opened.append(name)
        except OSError: pass
    assert len(found) > 50
    return opened[:5] or said(-1)
tried('switches', switches)
tried('usr', lambda: open('/usr/bin/confide-test', 'w'))
tried('root', lambda: open('/confide-test', 'w'))
tried('etc', lambda: open('/etc/confide-test', 'w'))
tried('mirror', lambda: open('/task-mirror/HEAD', 'w'))
tried('users', lambda: len([each for each in pathlib.Path('/home').iterdir() if each.name != 'agent']) or said(-1))
tried('kill all', lambda: said(-1) if len([p for p in os.listdir('/proc') if p.isdigit()]) < 8 else 'many')
tried('terminal', lambda: __import__('fcntl').ioctl(0, 0x5412, b'x'))
tried('tty', lambda: open('/dev/tty', 'w'))
"""
        state, printed = await work(runs, f"python3 - <<'END'\n{inside}\nEND\n")
    assert state == "succeeded", printed
    assert "ESCAPED" not in printed
    assert printed.count(" held") == inside.count("\ntried(")


async def test_a_fork_bomb_is_held_and_ended(runs: Runs) -> None:
    """It takes no more than its share while it lives, and is gone as soon as it is told."""
    bomb = "echo begun; bomb() { bomb | bomb & }; bomb; sleep 60"
    settings = runs.settings(
        f'kind = "command"\ncommand = ["sh", "-c", {json.dumps(bomb)}]', more="[limits]\nprocesses = 64\n"
    )
    run = runs.make(settings, "", has_repository=False)
    going = asyncio.create_task(run.go())
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.4):
            await asyncio.shield(going)
    run.stop("cancelled", "it was cancelled")
    result = await going
    # Where its share of processes is bounded, the shell itself may have had none left to go on with.
    assert result.state in ("cancelled", "failed")
    assert [line for line in _commands() if b"bomb()" in line] == []


def _commands() -> list[bytes]:
    """All processes of this machine, as they were started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(path.read_bytes())
    return found


async def test_what_hides_its_folders_is_removed_all_the_same(runs: Runs) -> None:
    state, _ = await work(
        runs, "mkdir -p deep/er; touch deep/er/file; chmod 0 deep/er deep; cd /task; chmod 0 tree; true"
    )
    assert state in ("succeeded", "failed", "again")
    await runs.run.tidy()
    assert not runs.run.folder.exists()


async def test_a_log_is_kept_whole_and_a_terminal_never_gets_it_raw(runs: Runs) -> None:
    """Escapes are what was printed; nobody shows them as they are: that is the business of whoever prints a log."""
    _, printed = await work(runs, "printf '\\033]52;c;ZXZpbA==\\007\\033[2J\\377\\n'")
    assert "\x1b]52" in printed


@pytest.mark.parametrize(
    "url", ["ext::sh -c 'touch planted'", "--upload-pack=touch planted", "fd::17", "-u", "a\nb", "relative/path"]
)
def test_a_repository_is_an_address_and_no_program(runs: Runs, url: str) -> None:
    with pytest.raises(ConfideError, match="wrong value"):
        runs.settings('kind = "command"\ncommand = ["true"]', more=f"other = {json.dumps(url)}\n")


@pytest.mark.parametrize("look_s", [0.0, 60.0], ids=["while it comes", "once it is there"])
async def test_a_repository_that_is_too_large_is_let_go(
    runs: Runs, look_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("confide_night.runner.mirrors._LOOK_S", look_s)
    settings = runs.settings('kind = "command"\ncommand = ["true"]', more="[limits]\nclone_mib = 1\n")
    (runs.repository / "large").write_bytes(os.urandom(3 * 2**20))
    git(runs.repository, "add", "large")
    git(runs.repository, "commit", "-q", "-m", "large")
    runs.make(settings, "")
    with pytest.raises(RepositoryError, match="larger than 1 MiB"):
        await runs.mirror.fetch()
    assert list((runs.folder / "repositories").iterdir()) == []


async def test_objects_that_git_finds_unsound_are_not_taken(runs: Runs) -> None:
    """A tree with an entry `.git` would, checked out, be the settings of whoever has it."""
    blob = git(runs.repository, "hash-object", "-w", "a.txt").strip()
    made = runs.folder / "tree"
    made.write_bytes(b"100644 .git\0" + bytes.fromhex(blob))
    tree = git(runs.repository, "hash-object", "-w", "-t", "tree", "--literally", str(made)).strip()
    commit = git(runs.repository, "commit-tree", "-m", "evil", tree).strip()
    git(runs.repository, "update-ref", "refs/heads/main", commit)
    runs.make(runs.settings('kind = "command"\ncommand = ["true"]'), "")
    with pytest.raises(RepositoryError, match="cannot clone"):
        await runs.mirror.fetch()


async def test_a_submodule_is_not_fetched(runs: Runs) -> None:
    (runs.repository / ".gitmodules").write_text('[submodule "x"]\n\tpath = x\n\turl = ext::sh -c "touch planted"\n')
    git(runs.repository, "add", "-A")
    git(runs.repository, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},x")
    git(runs.repository, "commit", "-q", "-m", "module")
    result = await runs.command("ls x; echo here")
    assert "here" in result.text
    assert not list(runs.folder.rglob("planted"))


def test_files_of_a_run_are_this_users_alone(runs: Runs) -> None:
    asyncio.run(runs.command("true"))
    for path in (runs.run.folder, runs.run.folder / "work", runs.run.folder / "out"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700


async def test_a_run_is_in_a_session_of_its_own(runs: Runs) -> None:
    """With its runner's session it could type into the terminal that this was started from."""
    state, printed = await work(runs, "cut -d ' ' -f 6 /proc/self/stat; tty")
    assert state == "failed"
    sid, said = printed.split("stdout")[-1].split("\n")[1:3]
    assert int(sid) > 0, "the session is one from outside"
    assert said == "not a tty"
