"""Canaille, an OAuth 2.0 server, on loopback and in memory; ends when its standard input closes.

Runs in the environment of the identity provider. When ready, it prints one line of JSON: the address of the
token endpoint, and the credentials of the one user and of the client that it knows. Another client,
`machine`, may log in with HTTP Basic only.
"""

import argparse
import json
import logging
import secrets
import sys
import threading
from typing import Any

# Canaille is only installed in the identity provider's own environment.
from canaille import create_app  # type: ignore[import-not-found]
from canaille.app import models  # type: ignore[import-not-found]
from canaille.backends import Backend  # type: ignore[import-not-found]
from werkzeug.serving import make_server

GRANTS = ("password", "refresh_token", "client_credentials")
# Characters that a form has to quote.
PASSWORD = "pass wörd & 100 %+=" + secrets.token_hex(8)
CLIENT_SECRET = "client/secret & 100 %+=" + secrets.token_hex(8)

# Canaille does not unquote what HTTP Basic has to quote by RFC 6749.
MACHINE_SECRET = secrets.token_urlsafe(16)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--life", type=int, default=3600, help="seconds that a token lives")
    life = parser.parse_args().life
    app: Any = None  # it has to know the port first
    # One request at a time, because Canaille's memory is not made for threads.
    server = make_server("127.0.0.1", 0, app)
    config = {
        # Without its name, Canaille fails with 500 where it should refuse a client.
        "SERVER_NAME": f"127.0.0.1:{server.port}",
        "SECRET_KEY": secrets.token_hex(),
        "CANAILLE": {"DATABASE": "memory"},
        "OAUTH2_TOKEN_EXPIRES_IN": dict.fromkeys(GRANTS, life),
    }
    server.app = app = create_app(config)
    with app.app_context():
        user = models.User(user_name="alice", family_name="Liddell", emails=["alice@example.com"])
        Backend.instance.save(user)
        Backend.instance.set_user_password(user, PASSWORD)
        for client_id, secret, method in (
            ("airflow", CLIENT_SECRET, "client_secret_post"),
            ("machine", MACHINE_SECRET, "client_secret_basic"),
        ):
            client = models.Client(
                client_id=client_id,
                client_name="Airflow",
                client_secret=secret,
                client_uri="http://127.0.0.1",
                redirect_uris=["http://127.0.0.1/callback"],
                grant_types=list(GRANTS),
                scope=["openid", "profile"],
                token_endpoint_auth_method=method,
            )
            Backend.instance.save(client)
            client.audience = [client]
            Backend.instance.save(client)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    ready = {
        "token_url": f"http://127.0.0.1:{server.port}/oauth/token",
        "username": "alice",
        "password": PASSWORD,
        "client_id": "airflow",
        "client_secret": CLIENT_SECRET,
        "machine_secret": MACHINE_SECRET,
    }
    sys.stdout.write(json.dumps(ready) + "\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    main()
