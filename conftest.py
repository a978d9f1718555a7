"""For all tests: properties look for new cases at a desk, and for the same ones in CI."""

import os

from hypothesis import settings

# A machine's pace is never a reason to fail, and a red CI run must be one that can be run again.
settings.register_profile("desk", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")
