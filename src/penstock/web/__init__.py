"""Pages in the browser: the view of a running app.

`watch(app)` serves it from a script or a notebook. `kit` is what other packages make their own pages of.
"""

from penstock.web.watch import watch as watch
