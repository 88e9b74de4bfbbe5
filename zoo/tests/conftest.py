"""These tests run where lapis-zoo is installed: pip install --no-deps --no-build-isolation -e zoo."""

import importlib.util

collect_ignore = [] if importlib.util.find_spec("lapis_zoo") else ["test_zoo.py"]
