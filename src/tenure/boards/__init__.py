"""Boards: where people look and move cards. A port, the boards behind it, and what keeps board and engine in step."""
