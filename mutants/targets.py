"""What is mutated, and the tests that are nearest to it: few, so that a mutant costs seconds."""

from __future__ import annotations

# Modules below `airflow_provider`, each with its tests, the nearest first: `client/a b` names
# tests/client/test_a.py and tests/client/test_b.py.
TARGETS = {
    "client/responses": "client/responses",
    "client/batches": "client/batches",
    "client/endpoints": "client/endpoints",
    "client/exchange": "client/exchange",
    "client/models": "client/models contract/client_reads",
    "client/settings": "client/settings",
    "client/findings": "client/findings",
    "client/profile": "client/profile",
    "client/http/bodies": "client/bodies",
    "client/tokens": "client/tokens token_sharing token_use frameworks/operators",
    "client/http/wire": "client/wire exchange",
    "client/base": "client/shared_state token_use forking",
    "hooks/token_file": "hooks/token_file",
    "waiting/poller": "waiting/poller_timing subscriptions runtime/metrics/metrics",
    "waiting/connection": "waiting/poller_timing subscriptions",
    "waiting/results": "waiting/results",
    "waiting/rules": "waiting/rules waits poller_timing refusals",
    "waiting/waits": "waiting/waits deadlines",
    "nights/bulk/pipeline": "nights/bulk/pipeline engine in_flight",
    "nights/bulk/items": "nights/bulk/items checkpoint",
    "nights/bulk/backoff": "nights/bulk/backoff limiter",
    "nights/bulk/engine": "nights/bulk/engine pipeline",
    "nights/bulk/checkpoint": "nights/bulk/checkpoint checkpoint_histories",
    "storage/atomic": "storage/atomic texts jsonl",
    "nights/index/nights": "nights/index/nights",
    "storage/task_state": "storage/task_state",
    "waiting/frameworks/catalog": "frameworks/catalog",
    "waiting/frameworks/watcher": "frameworks/watcher catalog watching_faults",
    "nights/ingest/earlier": "nights/ingest/outdated earlier_nights",
    "nights/ingest/outdated": "nights/ingest/outdated sources",
    "storage/sources": "nights/ingest/source_evidence sources",
    "nights/ingest/sources": "nights/ingest/sources ./night",
    "nights/ingest/documents": "nights/ingest/names source_evidence resuming",
    "nights/assess/agreement": "nights/assess/agreement",
    "nights/assess/cells": "nights/assess/cells",
    "nights/assess/findings": "nights/assess/verdicts",
    "nights/assess/inputs": "nights/assess/inputs",
    "nights/assess/steps": "nights/assess/results",
    "nights/assess/payloads": "nights/assess/payloads",
    "nights/assess/tables": "nights/assess/tables",
    "nights/assess/verdicts": "nights/assess/verdicts histories",
    "cli/doctor": "cli/doctor",
    "cli/trial": "cli/trial",
    "pages/app": "pages/app",
    "pages/nights": "pages/app",
    "nights/review/decisions": "nights/review/decisions",
    "nights/review/state": "nights/review/state operators/review_two_attempts review_attempts review_state",
    "nights/review/form": "nights/review/form selection operators/review review_night",
    "nights/review/grouping": "nights/review/grouping",
    "nights/review/selection": "nights/review/selection grouping",
    "nights/evidence/chain": "nights/evidence/chain closing",
    "nights/evidence/closing": "nights/evidence/history closing",
    "nights/evidence/erasing": "nights/evidence/erasing retiring",
    "nights/evidence/history": "nights/evidence/history closing retiring",
    "nights/evidence/manifests": "nights/evidence/history closing",
    "nights/evidence/holds": "nights/evidence/erasing cli/erase",
    "nights/evidence/pack": "nights/evidence/pack",
    "nights/evidence/tables": "nights/evidence/history closing",
    "nights/evidence/verifier": "nights/evidence/links verify verify_hostile",
    "nights/evidence/stores": "nights/evidence/verify_hostile",
    "nights/evidence/timestamps": "nights/evidence/timestamps",
    "nights/evidence/traces": "nights/evidence/erasing",
    "nights/evidence/totals": "nights/evidence/history closing",
    "nights/reports/assess": "nights/reports/assess",
    "nights/reports/charts": "nights/reports/charts trend ingest",
    "nights/reports/ingest": "nights/reports/ingest charts",
    "nights/reports/night": "nights/reports/night trend",
    "nights/reports/outcomes": "nights/reports/ingest night",
    "nights/reports/page": "nights/reports/page ingest night",
    "nights/reports/verdicts": "nights/reports/assess night",
}


def nearest_tests(module: str) -> list[str]:
    """Return the paths of the tests of a module."""
    paths, folder = [], ""
    for test in TARGETS[module].split():
        above, _, name = test.rpartition("/")
        folder = above or folder
        paths.append(f"tests/{folder}/test_{name}.py".replace("/./", "/"))
    return paths
