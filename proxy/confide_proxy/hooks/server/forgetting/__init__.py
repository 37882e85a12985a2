"""Forgetting of texts on this device: the records that it keeps, and a removal from everywhere."""
