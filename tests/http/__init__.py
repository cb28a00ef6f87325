"""The HTTP surface, over real sockets against real server processes."""
