"""Broken providers: for every check one that fails it, and no other that must hold.

Each is the scaffold's provider with one change, named after the check. ``LIMITS`` and
``ENV`` are what the kit is told for it; ``ALSO`` are checks of level should that the same
change can't but fail.
"""
