"""How the index of a space follows its documents: which generation of vectors serves, which is filled, by which model, at what cost."""
