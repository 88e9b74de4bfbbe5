"""Pages and figures of what Lapis computes: the explain page, figures for notebooks, energy charts."""

from lapis.report import figures
from lapis.report.energy_chart import energy_chart
from lapis.report.page import Explained, write_page
from lapis.report.page.open import explain

__all__ = ["Explained", "energy_chart", "explain", "figures", "write_page"]
