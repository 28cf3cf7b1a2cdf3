"""Evidence of what a night did: hashes and references in a chain that anybody can verify."""
