"""How often the judge of rules is right (docs/learning.md): labelled turns of everyday sessions, in two halves."""
