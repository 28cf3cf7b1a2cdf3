"""HTTP details: bodies, uploads, proxies, certificates, timeouts."""
