"""The add-on that shows how useful the memory was: which notes agents on this device were shown,
which they used, and what that cost. `confide_proxy/hooks/server/usage.py` counts these.
"""
