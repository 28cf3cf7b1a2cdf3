"""Lists of documents in parts, for mapped tasks."""

from __future__ import annotations

from typing import Any


def chunk(items: Any, size: int) -> Any:
    """Split a list for `.expand()`: a list into lists, the result of a task into the result of another.

    :param items: a list, or what a task returns
    :param size: how many at most are in one part
    """
    if size < 1:
        raise ValueError(f"size is at least 1, not {size!r}.")
    if hasattr(items, "operator"):  # the result of a task
        from airflow.providers.common.compat.sdk import task

        return task(task_id=f"chunk_{items.operator.task_id}")(_chunked)(items, size)
    return _chunked(items, size)


def _chunked(items: Any, size: int) -> list[list[Any]]:
    many = list(items)
    return [many[start : start + size] for start in range(0, len(many), size)]
