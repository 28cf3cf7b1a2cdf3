"""Shared by the bulk operators."""
