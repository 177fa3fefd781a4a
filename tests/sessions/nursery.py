"""Imported by the process that children are forked from: everything is loaded here, once, and in none of them."""

from tests.sessions.child import warm

warm()
