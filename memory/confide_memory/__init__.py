"""The format of memory that both programs share: documents, notes, front matter, sections, tools,
and the fields of requests. No I/O.
"""
