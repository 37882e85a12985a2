"""How long a test waits."""

from typing import Final

DEADLINE_S: Final = 120.0
"""For what comes at once where all is well: whoever is patient for so long waits for what never comes, however busy the machine is."""
