"""The index of nights: where later nights find what earlier ones left."""
