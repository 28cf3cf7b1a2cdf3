"""What every bulk operator needs."""
