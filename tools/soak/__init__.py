"""Steady load for an hour, and docs/soak.md out of what was seen: does anything grow?"""
