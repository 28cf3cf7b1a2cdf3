"""The catalog of compliance frameworks: snapshots, differences, the watcher."""
