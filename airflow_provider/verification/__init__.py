"""Verifies the evidence of closed nights: reads only, and trusts nothing that it reads."""
