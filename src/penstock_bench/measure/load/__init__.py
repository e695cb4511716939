"""Drivers: when events are due, what they hold, and how they are sent on time."""
