"""Faults made on purpose: does a test notice when what protects somebody is left out?"""
