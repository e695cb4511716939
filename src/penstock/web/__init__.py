"""Pages in the browser: a controller and a performance monitor for benchmark runs, and a view of a running app.

>>> from penstock.web import watch      # doctest: +SKIP
>>> watch(app)                          # doctest: +SKIP
<penstock.web at http://127.0.0.1:8080/app>
"""

from penstock.web.watch import watch as watch
