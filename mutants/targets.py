"""What is mutated, and the tests that are nearest to it: few, so that a mutant costs seconds."""

from __future__ import annotations

EMULATOR = "tests/frameworks/test_operators.py"  # few, but against a real login
CLOSING = "tests/evidence/test_history.py tests/evidence/test_closing.py"
VERIFY = "tests/evidence/test_links.py tests/evidence/test_verify.py tests/evidence/test_verify_hostile.py"
WAITING = "tests/waiting/test_poller_timing.py tests/waiting/test_subscriptions.py"

TARGETS = {
    "client/responses": "tests/client/test_responses.py",
    "client/batches": "tests/client/test_batches.py",
    "client/endpoints": "tests/client/test_endpoints.py",
    "client/exchange": "tests/client/test_exchange.py",
    "client/models": "tests/client/test_models.py tests/contract/test_client_reads.py",
    "client/settings": "tests/client/test_settings.py",
    "client/http/bodies": "tests/client/test_bodies.py",
    "client/tokens": "tests/client/test_tokens.py tests/client/test_token_sharing.py "
    f"tests/client/test_token_use.py {EMULATOR}",
    "client/http/wire": "tests/client/test_wire.py tests/client/test_exchange.py",
    "client/base": "tests/client/test_shared_state.py tests/client/test_token_use.py "
    "tests/client/test_forking.py",
    "waiting/poller": f"{WAITING} tests/metrics/test_metrics.py",
    "waiting/connection": WAITING,
    "waiting/results": "tests/waiting/test_results.py",
    "waiting/rules": "tests/waiting/test_rules.py tests/waiting/test_waits.py "
    "tests/waiting/test_poller_timing.py tests/waiting/test_refusals.py",
    "waiting/waits": "tests/waiting/test_waits.py",
    "bulk/pipeline": "tests/bulk/test_pipeline.py tests/bulk/test_engine.py tests/bulk/test_in_flight.py",
    "bulk/items": "tests/bulk/test_items.py tests/bulk/test_checkpoint.py",
    "bulk/backoff": "tests/bulk/test_backoff.py tests/bulk/test_limiter.py",
    "bulk/engine": "tests/bulk/test_engine.py tests/bulk/test_pipeline.py",
    "bulk/checkpoint": "tests/bulk/test_checkpoint.py tests/bulk/test_checkpoint_histories.py",
    "storage/atomic": "tests/storage/test_atomic.py tests/storage/test_texts.py tests/storage/test_jsonl.py",
    "storage/nights": "tests/storage/test_nights.py",
    "storage/task_state": "tests/storage/test_task_state.py",
    "frameworks/catalog": "tests/frameworks/test_catalog.py",
    "frameworks/watcher": "tests/frameworks/test_watcher.py tests/frameworks/test_catalog.py "
    "tests/frameworks/test_watching_faults.py",
    "ingest/earlier": "tests/ingest/test_outdated.py tests/ingest/test_earlier_nights.py",
    "ingest/files": "tests/ingest/test_outdated.py tests/ingest/test_sources.py "
    "tests/ingest/test_source_evidence.py",
    "ingest/sources": "tests/ingest/test_sources.py tests/test_night.py",
    "ingest/documents": "tests/ingest/test_names.py tests/ingest/test_source_evidence.py "
    "tests/ingest/test_resuming.py",
    "assess/agreement": "tests/assess/test_agreement.py",
    "assess/cells": "tests/assess/test_cells.py",
    "assess/findings": "tests/assess/test_verdicts.py",
    "assess/inputs": "tests/assess/test_inputs.py",
    "assess/steps": "tests/assess/test_results.py",
    "assess/payloads": "tests/assess/test_payloads.py",
    "assess/tables": "tests/assess/test_tables.py",
    "assess/verdicts": "tests/assess/test_verdicts.py tests/assess/test_histories.py",
    "review/decisions": "tests/review/test_decisions.py",
    "review/state": "tests/review/test_state.py tests/operators/test_review_two_attempts.py "
    "tests/operators/test_review_attempts.py tests/operators/test_review_state.py",
    "review/form": "tests/review/test_form.py tests/review/test_selection.py tests/operators/test_review.py "
    "tests/operators/test_review_night.py",
    "review/grouping": "tests/review/test_grouping.py",
    "review/selection": "tests/review/test_selection.py tests/review/test_grouping.py",
    "evidence/chain": "tests/evidence/test_chain.py tests/evidence/test_closing.py",
    "evidence/closing": CLOSING,
    "evidence/history": f"{CLOSING} tests/evidence/test_retiring.py",
    "evidence/manifests": CLOSING,
    "evidence/tables": CLOSING,
    "evidence/verifier": VERIFY,
    "evidence/stores": "tests/evidence/test_verify_hostile.py",
    "evidence/totals": CLOSING,
    "reports/assess": "tests/reports/test_assess.py",
    "reports/charts": "tests/reports/test_charts.py tests/reports/test_trend.py tests/reports/test_ingest.py",
    "reports/ingest": "tests/reports/test_ingest.py tests/reports/test_charts.py",
    "reports/night": "tests/reports/test_night.py",
    "reports/outcomes": "tests/reports/test_ingest.py tests/reports/test_night.py",
    "reports/page": "tests/reports/test_page.py tests/reports/test_ingest.py tests/reports/test_night.py",
    "reports/trend": "tests/reports/test_trend.py tests/reports/test_night.py",
    "reports/verdicts": "tests/reports/test_assess.py tests/reports/test_night.py",
}
"""Modules below `airflow_provider`, each with its tests, the nearest first."""


def nearest_tests(module: str) -> list[str]:
    """Return the paths of the tests of a module, each once."""
    return list(dict.fromkeys(TARGETS[module].split()))
