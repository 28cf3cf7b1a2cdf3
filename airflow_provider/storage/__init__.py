"""Texts in object storage: locations, safe names, atomic writes."""
