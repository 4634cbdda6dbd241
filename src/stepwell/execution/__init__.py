"""Run one job and say how it went. Knows no SQL."""
