"""Build every file of a release into an empty folder: `make release`, or `python -m release dist`.

The folder then holds the sdist, the wheel, the MCP bundle, a CycloneDX SBOM for each lock, server.json, the Homebrew
formula, the AUR files, the changelog of this version and SHA256SUMS. Two runs on one commit give the same
bytes. Nothing is published: release/README.md says how.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from confide_daemon import __version__
from release.archives import BUILD_S, build, bundle, source_date
from release.channels import Channels, filled, server_json

ROOT: Final = Path(__file__).parents[1]
LOCKS: Final = ("confide", "confided")
SUMS: Final = "SHA256SUMS"


def digest(path: Path) -> str:
    """Return the SHA-256 of a file, in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def changes(version: str) -> str:
    """Return the changelog of one version, without its heading. Raises ValueError if it has none."""
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    found = re.search(rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", text, re.MULTILINE | re.DOTALL)
    if not found:
        raise ValueError(f"CHANGELOG.md has no section for {version}")
    return found[1].strip() + "\n"


def bill_of_materials(lock: str, into: Path, version: str, date: int) -> Path:
    """Write the CycloneDX SBOM of an install: Confide, and each dependency of a lock with its hashes."""
    target = into / f"{lock}-{version}.cdx.json"
    subprocess.run(
        [
            *(sys.executable, "-m", "cyclonedx_py", "requirements", f"locks/{lock}.txt"),
            *("--pyproject", "pyproject.toml", "--output-reproducible", "--short-PURLs", "--no-validate"),
            *("--index-url", "", "--output-file", target),
        ],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "SOURCE_DATE_EPOCH": str(date)},
        check=True,
        capture_output=True,
        timeout=BUILD_S,
    )
    return target


def release(into: Path, version: str) -> list[Path]:
    """Build all files into an empty folder, and return them, SHA256SUMS last.

    Raises ValueError if the folder is not empty, the tree has changes or the changelog lacks the version, and
    subprocess.CalledProcessError if a build fails.
    """
    into.mkdir(parents=True, exist_ok=True)
    if any(into.iterdir()):
        raise ValueError(f"{into} is not empty")
    command = ["git", "-C", ROOT, "status", "--porcelain"]
    if subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=True).stdout:
        raise ValueError("there are changes that are not committed; a release is built from a commit")
    notes = changes(version)
    channels, date = Channels.load(), source_date(ROOT)
    sdist, wheel = build(ROOT, into, date)
    packed = bundle(wheel, into, channels, version, date)
    made = [sdist, wheel, packed, *(bill_of_materials(lock, into, version, date) for lock in LOCKS)]
    files = {"sdist": (sdist.name, digest(sdist)), "wheel": (wheel.name, digest(wheel))}
    texts = {
        "server.json": server_json(channels, version, packed, digest(packed)),
        "confide.rb": filled("confide.rb.in", channels, version, files),
        "PKGBUILD": filled("PKGBUILD.in", channels, version, files),
        ".SRCINFO": filled("SRCINFO.in", channels, version, files),
        "CHANGES.md": notes,
    }
    for name, text in texts.items():
        (into / name).write_text(text, "utf-8")
        made.append(into / name)
    sums = into / SUMS
    sums.write_text("".join(f"{digest(each)}  {each.name}\n" for each in sorted(made)))
    return [*made, sums]


def main() -> int:
    """Build what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m release", description=__doc__)
    parser.add_argument("into", type=Path, help="an empty folder, which is made")
    parser.add_argument("--version", default=__version__, help="the version whose changelog is taken")
    options = parser.parse_args()
    try:
        for each in release(options.into, options.version):
            print(f"{each.stat().st_size:>12,}  {each}")
    except (ValueError, subprocess.CalledProcessError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
