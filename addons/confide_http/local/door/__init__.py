"""Who and what is let in, and on what terms: the guard, tokens, identities, limits, and what is answered to the others."""
