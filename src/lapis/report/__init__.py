"""Pages of what Lapis computes: the explain page, the reports of commands, energy tables."""

from lapis.report.page import Explained, write_page
from lapis.report.page.explain import explain

__all__ = ["Explained", "explain", "write_page"]
