"""One target under libFuzzer: `python -m fuzz.one TARGET [libFuzzer's options] CORPUS`. Started by `python -m fuzz`."""

from __future__ import annotations

import sys


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    import atheris  # type: ignore[import-untyped,unused-ignore]

    with atheris.instrument_imports(include=["confide_crypto"]):
        from fuzz.targets import TARGETS

    name = sys.argv.pop(1)
    atheris.Setup(sys.argv, TARGETS[name].run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
