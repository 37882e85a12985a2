"""Run the core's tests with `addons/` off the path: `make core`, or `python -m tests.core` with pytest's options.

They run in an environment that has all libraries of this one, and of Confide the four packages of the core alone.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
ENVIRONMENT = ROOT / ".venv" / "core"
CORE = ("crypto", "memory", "proxy", "daemon")
PROGRAMS = ("confide", "confided")


def made() -> Path:
    """Make the environment; return its Python."""
    venv.create(ENVIRONMENT, symlinks=True, clear=True)
    python = ENVIRONMENT / "bin" / "python"
    libraries = sysconfig.get_path("purelib", vars={"base": str(ENVIRONMENT), "platbase": str(ENVIRONMENT)})
    # A path alone: what stands in the .pth files of this one, the add-ons among it, is left out.
    paths = [sysconfig.get_path("purelib"), *(str(ROOT / folder) for folder in CORE)]
    (Path(libraries) / "core.pth").write_text("\n".join(paths) + "\n", "utf-8")
    for name in PROGRAMS:
        program = Path(sys.executable).parent / name
        _, _, rest = program.read_text("utf-8").partition("\n")
        (python.parent / name).write_text(f"#!{python}\n{rest}", "utf-8")
        (python.parent / name).chmod(0o755)
    return python


def main() -> int:
    """Run them; return pytest's exit code."""
    options = sys.argv[1:] or ["-n", "4", "--dist", "worksteal", "-m", "not channel and not e2e"]
    paths = [] if any((ROOT / each.partition("::")[0]).exists() for each in options) else ["tests"]
    return subprocess.call([made(), "-m", "pytest", *options, "--ignore", "tests/addons", *paths], cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
