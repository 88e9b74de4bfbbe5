"""The explain page: one run of a network on one image, as a single HTML file."""

from lapis.report.page.explain import Explained
from lapis.report.page.page import render, write_page

__all__ = ["Explained", "render", "write_page"]
