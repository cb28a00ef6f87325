"""The command line: parse, run one engine verb, render."""
