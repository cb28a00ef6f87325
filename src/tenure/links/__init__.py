"""Links: who sees an agent's process, and what exactly is seen.

`identity` tells one process from every other that ever had its number.
"""
