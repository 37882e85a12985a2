"""What makes a piece of a text a credential: one module a way of writing them down, each with `find`."""
