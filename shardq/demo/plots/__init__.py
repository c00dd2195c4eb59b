"""The pictures that a run leaves. matplotlib is imported in here only."""
