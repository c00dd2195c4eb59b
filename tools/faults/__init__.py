"""The fault campaign: clients at work, a nemesis that breaks things in a seeded order, and a checker."""
