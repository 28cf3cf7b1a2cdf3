"""Transfer operators."""
