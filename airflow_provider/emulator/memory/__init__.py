"""What the emulator remembers; nothing here knows HTTP."""
