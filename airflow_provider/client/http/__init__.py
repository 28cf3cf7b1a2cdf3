"""How bytes travel: bodies, files, proxies, certificates, timeouts."""
