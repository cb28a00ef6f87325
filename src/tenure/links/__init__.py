"""Links: who sees an agent's process, and what exactly is seen.

`identity` tells one process from every other that ever had its number. `watch` notices at once that one has exited.
`sweep` writes down the deaths that a claimant finds on its own host, where nobody else is running to do it.
"""
