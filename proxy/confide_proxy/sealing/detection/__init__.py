"""Find credentials in a text before it leaves this device, and apply the user's policy to each.

No value is stored, printed or logged here: a `SecretFinding` contains only its position in the
text.
"""
