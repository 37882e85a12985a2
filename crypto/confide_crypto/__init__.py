"""Code that both ends of a Confide channel share: keys, the handshake, the encrypted channel,
joining by invite, and errors.
"""
