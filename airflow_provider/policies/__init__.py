"""Policies for tasks of this provider."""
