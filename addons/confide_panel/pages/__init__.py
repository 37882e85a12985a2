"""The pages: each a function of a `PageContext` that answers with one, or takes what its forms send."""
