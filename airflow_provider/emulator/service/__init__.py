"""The emulated service: its state, its operations and its controls."""
