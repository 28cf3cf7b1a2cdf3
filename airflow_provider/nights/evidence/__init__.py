"""Evidence of what a night has done: hashes and references in a chain that anybody can verify."""
