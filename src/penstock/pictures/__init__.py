"""Pictures of an application, as SVG: `svg` draws, `sliding_graphs` and `plans` say what goes where, `application`
puts them on one sheet."""
