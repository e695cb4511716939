"""What other packages make their own pages of: a `Site` with a `Page` for each, served by `Serving`.

`page` is the frame of a page, `panel`, `Table`, `Figures`, `State` and the charts are what is in it, and `shown` writes
numbers as the pages do.
"""

from penstock.web import shown
from penstock.web.charts import HistogramChart, LineChart
from penstock.web.embedded import look_at
from penstock.web.parts import Figures, State, Table, Text, button, done_bar, enable, panel
from penstock.web.seen import Watched
from penstock.web.server import Serving, take_address
from penstock.web.shell import page
from penstock.web.site import Page, Site

__all__ = [
    "Figures",
    "HistogramChart",
    "LineChart",
    "Page",
    "Serving",
    "Site",
    "State",
    "Table",
    "Text",
    "Watched",
    "button",
    "done_bar",
    "enable",
    "look_at",
    "page",
    "panel",
    "shown",
    "take_address",
]
