"""The add-on that shows what memory was good for: which notes agents on this device were shown, which
they used, and what that cost. The counting itself is in `confide_proxy/hooks/server/usage.py`.
"""
