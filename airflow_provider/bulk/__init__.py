"""What every bulk operator needs, whatever it does with an item."""
