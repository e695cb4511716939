"""Pages in the browser: a controller and a performance monitor for benchmark runs, and a view of a running app.

`watch(app)` serves the view of an app from a script or a notebook.
"""

from penstock.web.watch import watch as watch
