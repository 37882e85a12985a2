"""Small repositories made by a script, and mutations of them whose effect on each part is known."""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

WORDS: Final = [
    "order",
    "user",
    "cart",
    "price",
    "token",
    "session",
    "cache",
    "queue",
    "invoice",
    "stock",
    "parcel",
    "rate",
    "limit",
    "retry",
    "batch",
    "region",
]
VERBS: Final = ("load", "save", "check", "price", "send", "drop", "merge", "count", "open", "close", "parse", "apply")

FORMS: Final[dict[str, tuple[str, ...]]] = {
    # ending: lines of one definition; {name}, {a}, {b} words, {n} a number, {s} a string's text
    "py": (
        "def {name}({a}, {b}=None):",
        '    """Return what {a} is."""',
        "    # first {b}",
        "    if {b} is None:",
        "        {a} = {a} + {n}",
        '        print("{s}", {a})  # told',
        "    return {a} * {n}",
    ),
    "ts": (
        "export async function {name}({a}: string, {b}: number): Promise<number> {{",
        "  // first {b}",
        "  const found = await store.get({a});",
        "  if (found && {b} > {n}) {{",
        '    log("{s}", `${{{a}}} {{`); // told',
        "    return found.size * {n};",
        "  }}",
        "  return {b};",
        "}}",
    ),
    "go": (
        "func (s *Server) {name}({a} string, {b} int) (int, error) {{",
        "\t// first {b}",
        "\tif {b} > {n} {{",
        '\t\ts.log("{s}", {a}) // told',
        "\t\treturn {n}, nil",
        "\t}}",
        "\tr := '{{'",
        "\treturn int(r) + {b}, s.err",
        "}}",
    ),
    "rs": (
        "pub fn {name}<'a>({a}: &'a str, {b}: usize) -> Option<&'a str> {{",
        "    // first {b}",
        "    let c = '{{';",
        "    if {b} > {n} && !{a}.starts_with(c) {{",
        '        println!("{s}");',
        "        return Some(&{a}[..{n}]);",
        "    }}",
        "    None",
        "}}",
    ),
    "java": (
        "    public static int {name}(String {a}, int {b})",
        "            throws IOException {{",
        "        /* first {b} */",
        "        if ({b} > {n}) {{",
        '            log("{s}", {a}); // told',
        "        }}",
        "        return {b} + {n};",
        "    }}",
    ),
    "c": (
        "static int {name}(const char *{a}, int {b})",
        "{{",
        "    /* first {b} */",
        "    if ({b} > {n}) {{",
        '        fprintf(stderr, "{s}", {a});',
        "    }}",
        "    return {b} * {n};",
        "}}",
    ),
    "rb": (
        "def {name}({a}, {b} = nil)",
        "  # first {b}",
        "  unless {b}",
        "    {a} = {a} + {n}",
        '    puts "{s}"',
        "  end",
        "  {a} * {n}",
        "end",
    ),
    "sh": (
        "{name}() {{",
        "  # first {b}",
        '  if [ "${a}" -gt {n} ]; then',
        '    echo "{s}"',
        "    {b}={n}",
        "  fi",
        "  return {n}",
        "}}",
    ),
    "yaml": (
        "{name}:",
        "  # first {b}",
        "  {a}: {n}",
        '  said: "{s}"',
        "  steps:",
        "    - {b}: {n}",
        "    - {a}_last: {n}",
    ),
    "sql": (
        "CREATE TABLE {name} (",
        "  -- first {b}",
        "  {a} INTEGER DEFAULT {n},",
        "  {b} TEXT DEFAULT '{s}',",
        "  CHECK ({a} > {n})",
        ");",
    ),
    "js": (
        "const {name} = async ({a}, {b} = {n}) => {{",
        "  // first {b}",
        "  const found = {a}.replace(/\\/*$/, '{s}');",
        "  if (found.length > {n}) {{",
        "    return found;",
        "  }}",
        "  return [{b}, {n}];",
        "}};",
    ),
}
COMMENTS: Final = {"py": "#", "rb": "#", "sh": "#", "yaml": "#", "sql": "--"}
STRINGS: Final = (
    "see http://x.test/a//b",
    "# no comment",
    "it costs 5; {n} left",
    "a /* b */ c",
    "-- {n}",
    "plain {n}",
)
WRAPPED: Final = {"java": ("class Shop {", "}")}


@dataclass
class SourceFile:
    """A file of definitions."""

    path: str
    ending: str
    names: list[str]
    blocks: list[list[str]]

    @property
    def lines(self) -> list[str]:
        opening, closing = WRAPPED.get(self.ending, ("", ""))
        inner = [line for block in self.blocks for line in (*block, "")]
        return [opening, *inner, closing] if opening else inner

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"

    def place(self, number: int) -> tuple[int, int]:
        """Return first and last line of a block, from 1."""
        before = sum(len(block) + 1 for block in self.blocks[:number]) + (self.ending in WRAPPED)
        return before + 1, before + len(self.blocks[number])

    def parts(self) -> dict[str, int]:
        """Return the parts that a note may name, with the block of each; -1 for the whole file."""
        found = {self.path: -1}
        for number, name in enumerate(self.names):
            first, last = self.place(number)
            found[f"{self.path}#{name}"] = number
            found[f"{self.path}:{first}-{last}"] = number
        return found


@dataclass
class Repository:
    """A repository on the disk."""

    root: Path
    files: list[SourceFile] = field(default_factory=list)

    def git(self, *arguments: str) -> None:
        who = ("-c", "user.name=a", "-c", "user.email=a@b.test", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *who, *arguments], cwd=self.root, check=True, capture_output=True)

    def write(self, file: SourceFile, text: str | None = None) -> None:
        place = self.root / file.path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes((file.text if text is None else text).encode())


def made(root: Path, chance: random.Random, *, files: int) -> Repository:
    """Make a repository with so many files of each language, and a branch `other` with some of them edited."""
    root.mkdir(parents=True)
    repository = Repository(root)
    for ending, form in FORMS.items():
        for number in range(files):
            names = list(dict.fromkeys(f"{chance.choice(VERBS)}_{chance.choice(WORDS)}{at}" for at in range(4)))
            if ending in ("java", "go"):
                names = ["".join(part.title() for part in name.split("_")) for name in names]
            blocks = [filled(form, name, chance) for name in names]
            file = SourceFile(f"src/{ending}/part{number}.{ending}", ending, names, blocks)
            repository.files.append(file)
            repository.write(file)
    repository.git("init", "-q", "-b", "main")
    repository.git("add", ".")
    repository.git("commit", "-q", "-m", "first")
    return repository


def filled(form: tuple[str, ...], name: str, chance: random.Random) -> list[str]:
    """Return a definition of this name with drawn words."""
    a, b = chance.sample(WORDS, 2)
    number = chance.randrange(2, 900)
    said = chance.choice(STRINGS).replace("{n}", str(number))
    return [line.format(name=name, a=a, b=b, n=number, s=said) for line in form]


Change = Callable[[Repository, SourceFile, random.Random], "dict[str, bool]"]
"""Changes a file on the disk and returns, for each of its parts, whether it is still true."""


def _all(file: SourceFile, *, fresh: bool) -> dict[str, bool]:
    return dict.fromkeys(file.parts(), fresh)


def _touched(file: SourceFile, number: int) -> dict[str, bool]:
    return {part: block not in (-1, number) for part, block in file.parts().items()}


def edit(repository: Repository, file: SourceFile, chance: random.Random) -> dict[str, bool]:
    """Change one digit of one definition, in code or in a string, with or without another size and time."""
    number = chance.randrange(len(file.blocks))
    block = list(file.blocks[number])
    at = chance.choice([at for at, line in enumerate(block) if any(letter.isdigit() for letter in line) and at])
    line = block[at]
    places = [place for place, letter in enumerate(line) if letter.isdigit()]
    place = chance.choice(places)
    block[at] = line[:place] + str((int(line[place]) + chance.randrange(1, 9)) % 10) + line[place + 1 :]
    blocks = [*file.blocks[:number], block, *file.blocks[number + 1 :]]
    target = repository.root / file.path
    before = target.stat()
    repository.write(SourceFile(file.path, file.ending, file.names, blocks))
    if chance.random() < 0.5:
        os.utime(target, ns=(before.st_atime_ns, before.st_mtime_ns))  # a tool that puts times back
    return _touched(file, number)


def drop_line(repository: Repository, file: SourceFile, chance: random.Random) -> dict[str, bool]:
    """Take a line out of one definition."""
    number = chance.randrange(len(file.blocks))
    block = file.blocks[number]
    is_code = [at for at, line in enumerate(block) if at and not line.lstrip().startswith(("#", "//", "--", "/*"))]
    at = chance.choice(is_code)
    blocks = [*file.blocks[:number], [*block[:at], *block[at + 1 :]], *file.blocks[number + 1 :]]
    repository.write(SourceFile(file.path, file.ending, file.names, blocks))
    found = _touched(file, number)
    if file.ending not in ("py", "rb", "yaml") and block[at].strip() in ("{", "}", "};", ");", "fi", "} ", "end"):
        # Braces that do not fit: where the definitions behind it begin is nobody's to say.
        return {part: fresh for part, fresh in found.items() if not fresh}
    return found


def edit_string(repository: Repository, file: SourceFile, chance: random.Random) -> dict[str, bool]:
    """Change the end of a string that has what looks like a comment."""
    number = chance.randrange(len(file.blocks))
    block = list(file.blocks[number])
    at = next(at for at, line in enumerate(block) if line.count('"') > 1 or line.count("'") > 1)
    quote = '"' if block[at].count('"') > 1 else "'"
    end = block[at].index(quote, block[at].index(quote) + 1)
    block[at] = f"{block[at][:end]}x{block[at][end:]}"
    repository.write(
        SourceFile(file.path, file.ending, file.names, [*file.blocks[:number], block, *file.blocks[number + 1 :]])
    )
    return _touched(file, number)


def move(repository: Repository, file: SourceFile, chance: random.Random) -> dict[str, bool]:
    """Move a definition to another place of its file."""
    number, to = chance.sample(range(len(file.blocks)), 2)
    blocks = [block for at, block in enumerate(file.blocks) if at != number]
    blocks.insert(to, file.blocks[number])
    repository.write(SourceFile(file.path, file.ending, file.names, blocks))
    return {part: block != -1 for part, block in file.parts().items()}


def rename_symbol(repository: Repository, file: SourceFile, chance: random.Random) -> dict[str, bool]:
    """Give a definition another name."""
    number = chance.randrange(len(file.blocks))
    block = [line.replace(file.names[number], f"{file.names[number]}_new") for line in file.blocks[number]]
    repository.write(
        SourceFile(file.path, file.ending, file.names, [*file.blocks[:number], block, *file.blocks[number + 1 :]])
    )
    return _touched(file, number)


def second(repository: Repository, file: SourceFile, chance: random.Random) -> dict[str, bool]:
    """Define a name a second time, otherwise."""
    number = chance.randrange(len(file.blocks))
    again = filled(FORMS[file.ending], file.names[number], chance)
    repository.write(SourceFile(file.path, file.ending, file.names, [*file.blocks, again]))
    return {part: block != -1 and not (block == number and "#" in part) for part, block in file.parts().items()}


def remove_block(repository: Repository, file: SourceFile, chance: random.Random) -> dict[str, bool]:
    """Delete a definition."""
    number = chance.randrange(len(file.blocks))
    repository.write(
        SourceFile(file.path, file.ending, file.names, [*file.blocks[:number], *file.blocks[number + 1 :]])
    )
    return _touched(file, number)


def reformat(repository: Repository, file: SourceFile, chance: random.Random) -> dict[str, bool]:
    """Change blank space only: indentation, line ends, blank lines."""
    lines = file.lines
    how = chance.randrange(4)
    if how == 0:
        repository.write(file, "\r\n".join(lines) + "\r\n")
    elif how == 1:
        repository.write(file, "\n".join(f"{line}   " if line else line for line in lines))
    elif how == 2:
        repository.write(file, "\n".join(f"{line}\n" if chance.random() < 0.3 else line for line in lines) + "\n\n")
    else:
        repository.write(file, "\n".join(_wider(line) for line in lines) + "\n")
    return _all(file, fresh=True)


def _wider(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    return line[:indent] * 2 + line[indent:]


def comment(repository: Repository, file: SourceFile, chance: random.Random) -> dict[str, bool]:
    """Add comments, and change those that are there."""
    mark = COMMENTS.get(file.ending, "//")
    lines: list[str] = []
    for line in file.lines:
        if " first " in line and chance.random() < 0.7:
            line = line.replace("first", "at the beginning, don't forget,")
        elif line.strip() and chance.random() < 0.2:
            lines.append(f"{line[: len(line) - len(line.lstrip())]}{mark} why: {chance.randrange(99)}")
        lines.append(line)
    repository.write(file, "\n".join(lines) + "\n")
    return _all(file, fresh=True)


def rename_file(repository: Repository, file: SourceFile, _: random.Random) -> dict[str, bool]:
    """Give the file another name."""
    target = repository.root / file.path
    target.rename(target.with_name(f"renamed_{target.name}"))
    return _all(file, fresh=False)


def delete_file(repository: Repository, file: SourceFile, _: random.Random) -> dict[str, bool]:
    """Delete the file."""
    (repository.root / file.path).unlink()
    return _all(file, fresh=False)


CHANGES: Final[dict[str, Change]] = {
    each.__name__: each
    for each in (
        *(edit, drop_line, edit_string, move, rename_symbol, second, remove_block),
        *(reformat, comment, rename_file, delete_file),
    )
}


def restored(repository: Repository, file: SourceFile) -> None:
    """Put a file back as it was."""
    target = repository.root / file.path
    target.with_name(f"renamed_{target.name}").unlink(missing_ok=True)
    repository.write(file)
