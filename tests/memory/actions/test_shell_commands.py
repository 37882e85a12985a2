"""Commands are compared by their program and arguments, whatever stands around them."""

from __future__ import annotations

import pytest

from confide_memory.actions.shell_commands import command_words, commands, is_command


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("npm test", ["npm", "test"]),
        ("NODE_ENV=test sudo -E npx prisma migrate reset --force", ["prisma", "migrate", "reset", "--force"]),
        ("sudo -E -u app -- npm ci", ["npm", "ci"]),
        ("env -u CI A=1 nice -n 19 npm ci", ["npm", "ci"]),
        ("timeout -k 5 60s npm ci", ["npm", "ci"]),
        ("if ! npm ci", ["npm", "ci"]),
        ("do npm ci", ["npm", "ci"]),
        ("sudo -u", []),
        ("timeout", []),
        ("./node_modules/.bin/jest --ci", ["jest", "--ci"]),
        ("python3 -m pytest tests", ["pytest", "tests"]),
        ("uv run pytest", ["pytest"]),
        ("the cat", []),
        ("", []),
        ("'unclosed", []),
        ("(x)", []),
    ],
)
def test_a_command_is_its_program_and_arguments(line: str, words: list[str]) -> None:
    assert command_words(line) == words


@pytest.mark.parametrize(
    ("key", "line", "is_it"),
    [
        ("prisma migrate reset", "cd api && DATABASE_URL=x npx prisma migrate reset --force", True),
        ("prisma migrate reset", "npx prisma migrate dev", False),
        ("prisma migrate reset", "echo prisma migrate reset", False),
        ("pnpm install", "pnpm -r install", True),
        ("docker compose up", "docker compose -f x.yml up -d | tail -3", True),
        ("terraform apply -target=<module>", "terraform apply", False),
        ("mypy", "make types; mypy src", True),
        ("git push --force", "git push --force-with-lease", False),
        ("git push --force", "git push origin main --force", True),
    ],
)
def test_a_command_is_the_one_of_a_note(key: str, line: str, is_it: bool) -> None:
    assert is_command(key, commands(line)) is is_it


@pytest.mark.parametrize(
    "line",
    ["(npm ci)", "bash -lc 'npm ci'", 'sh -c "cd x && npm ci"', "sudo -u app bash -c 'npm ci; x'", "{ npm ci; }"],
)
def test_a_command_within_another_shell(line: str) -> None:
    assert is_command("npm ci", commands(line))
    assert not is_command("npm ci", commands(line.replace("ci", "test")))


def test_a_mark_within_quotes_divides_nothing() -> None:
    assert commands("git commit -m 'fix; pytest -x; more' && make") == [
        ["git", "commit", "-m", "fix; pytest -x; more"],
        ["make"],
    ]
    assert is_command("npm ci", commands("cat <<E\ndon't\nE\nnpm ci; echo it's"))
