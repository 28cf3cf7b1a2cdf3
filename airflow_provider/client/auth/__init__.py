"""Access tokens: one for each login, and shared by processes where that is wanted."""
