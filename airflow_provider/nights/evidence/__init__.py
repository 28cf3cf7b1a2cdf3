"""Evidence of a night: hashes and references in a chain that anyone can verify."""
