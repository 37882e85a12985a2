"""Coverage-guided fuzzing of everything that reads what a stranger, or a hostile peer, has written.

    python -m fuzz [--executions N] [--seconds S] [--only TARGET ...]

The targets (`targets.TARGETS`) are plain functions of bytes: `python -m fuzz` feeds them from libFuzzer through atheris, the test
suite (`tests/crypto/test_fuzz.py`) from a seeded random generator. A target raises only where the code under it did what it must not.
"""
