"""Every test of both packages has the fixtures of tests/shared_fixtures.py."""

pytest_plugins = ["shared_fixtures"]
