"""Storages around a storage, with the same contract."""
