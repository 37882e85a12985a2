"""What a memory holds: notes as an agent writes them, names of documents, transcripts, and what readers make of other stores."""
