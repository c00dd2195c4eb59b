"""Readers of raw rows and documents: what a store holds for a queue, found without the code under test."""
