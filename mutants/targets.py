"""What is mutated, and the tests that are nearest to it: few, so that a mutant costs seconds."""

from __future__ import annotations

CLIENT = "tests/client/test_both_clients.py"
EMULATOR = "tests/frameworks/test_operators.py"  # few, but against a real login
WAITING = "tests/waiting/test_poller.py tests/sensors/test_content.py"

TARGETS = {
    "client/responses": f"tests/client/test_exchange.py {CLIENT} tests/client/test_arbitrary_answers.py",
    "client/endpoints": f"tests/client/test_batch.py {CLIENT} tests/client/test_content.py "
    "tests/contract/test_client_reads.py",
    "client/exchange": f"tests/client/test_exchange.py {CLIENT} tests/client/test_token_use.py",
    "client/models": "tests/client/test_models.py tests/contract/test_client_reads.py",
    "client/settings": "tests/client/test_settings.py tests/hooks/test_connection.py",
    "client/http/bodies": "tests/client/test_content.py tests/client/test_encodings.py",
    "client/tokens": f"tests/client/test_tokens.py tests/client/test_token_use.py {EMULATOR}",
    "client/wire": f"tests/client/test_exchange.py {CLIENT} tests/client/test_content.py",
    "client/base": f"tests/client/test_token_use.py {CLIENT} tests/hooks/test_compliance_hook.py",
    "waiting/poller": WAITING,
    "waiting/results": f"{WAITING} tests/operators/test_content.py",
    "bulk/pipeline": "tests/bulk/test_engine.py tests/bulk/test_polling.py tests/ingest/test_operator.py",
    "bulk/items": "tests/bulk/test_items.py tests/bulk/test_checkpoint.py",
    "bulk/engine": "tests/bulk/test_engine.py tests/ingest/test_operator.py tests/bulk/test_polling.py",
    "bulk/checkpoint": "tests/bulk/test_checkpoint.py tests/ingest/test_operator.py",
    "storage/atomic": "tests/storage/test_atomic.py tests/storage/test_texts.py",
}
"""Modules below `airflow_provider`, each with its tests, the nearest first."""


def nearest_tests(module: str) -> list[str]:
    """Return the paths of the tests of a module, each once."""
    return list(dict.fromkeys(TARGETS[module].split()))
