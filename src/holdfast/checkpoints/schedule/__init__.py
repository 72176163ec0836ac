"""Schedules: checkpoints at intervals and by the calendar."""
