"""What is needed to make a release, and is not in the wheel."""
