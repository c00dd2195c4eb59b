"""Signals through Redis publish/subscribe, for any store."""
