"""Detection of credentials in a text before it leaves this device, and the user's policy for each.

No value is stored, printed or logged here: a `SecretFinding` holds only its position in the text.
"""
