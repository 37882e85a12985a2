"""The commands of both HTTP gateways: start one, manage tokens, and manage the programs that have
signed in.
"""
