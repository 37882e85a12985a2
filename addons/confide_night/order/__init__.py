"""Definitions of night tasks that devices, daemon and runners share: orders, schedules, slot
states, and the wire format.
"""
