"""Copies that are safe to share: a report or a part without the texts that no analysis shows, and with pseudonyms."""
