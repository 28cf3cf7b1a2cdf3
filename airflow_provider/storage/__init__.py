"""Texts in object storage: where they go, what they are called, and that they are whole."""
