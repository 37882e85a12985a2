"""Pieces that several tests share."""
