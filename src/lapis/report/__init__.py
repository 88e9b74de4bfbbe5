"""What Lapis computes, as pages and pictures: the explain page, figures for notebooks, charts of energy."""

from lapis.report import figures
from lapis.report.energy_chart import energy_chart
from lapis.report.page import Explained, write_page
from lapis.report.page.open import explain

__all__ = ["Explained", "energy_chart", "explain", "figures", "write_page"]
