"""What both programs know of a memory: documents, notes, their front matter and sections, tools, bodies of requests. No I/O."""
