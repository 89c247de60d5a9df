"""Copies that are safe to share.

A report or a part without the texts that no analysis shows, and with pseudonyms.
"""
