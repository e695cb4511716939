"""Reports of runs and series for people: HTML, Markdown, figures as SVG."""
