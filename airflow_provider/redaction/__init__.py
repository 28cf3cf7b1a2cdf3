"""Texts and addresses without secrets."""
