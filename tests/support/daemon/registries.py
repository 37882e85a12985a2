"""What tests of the registry name."""

KEY = bytes(range(32))
ALICE, BOB = b"a" * 32, b"b" * 32
