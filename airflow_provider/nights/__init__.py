"""Whole nights: a product on top of the provider."""
