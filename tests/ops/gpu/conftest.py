"""What is interpreted runs in a process of its own (test_interpreter.py): triton asks for its interpreter at import."""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted"]
