"""Tests of the store on real PostgreSQL servers, and the servers."""
