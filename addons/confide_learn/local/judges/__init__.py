"""Who judges what of an exchange is worth keeping: `rules` here, `local` and `client` by a model; `chain` asks them in order."""
