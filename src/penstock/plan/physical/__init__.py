"""The physical plan: what runs, and where. `nodes` are its parts, `rules` decide them, `render` writes them down."""
