"""What the emulator says over HTTP; nothing here remembers anything."""
