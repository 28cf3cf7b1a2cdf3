"""The catalogue of compliance frameworks: snapshots, differences, the watcher."""
