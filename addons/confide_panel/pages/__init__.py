"""The pages: each a function of a `Desk` that answers with one, or takes what its forms send."""
