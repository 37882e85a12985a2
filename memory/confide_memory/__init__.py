"""The memory format that both programs share: documents, notes, front matter, sections, tools,
request bodies. No I/O.
"""
