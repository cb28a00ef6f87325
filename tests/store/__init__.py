import pytest

# The contract's assertions explain themselves like those of a test module.
pytest.register_assert_rewrite("tests.store.contract")
