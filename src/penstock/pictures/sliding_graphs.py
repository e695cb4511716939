"""The sliding graphs of an application: for each stream and kind of slide, which there are and which divide which.

Slides by count, by event time and by the local clock are different positions and have graphs of their own, and so have
slides with an offset. A window that looks at every event slides by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.lang.render import render_duration
from penstock.pictures.svg import Box, Sheet, shortened, text_width
from penstock.plan.nodes import AggregateNode, Node, RelationNode, children, streams
from penstock.windows.sliding.graph_nodes import SlidingGraph

_ACROSS, _DOWN, _HEADING = 18, 44, 38


@dataclass
class StreamSlides:
    """The slides of one kind on a stream (or several that are merged), each with the queries that have it."""

    stream: str
    kind: str
    in_time: bool
    queries: dict[int, list[str]] = field(default_factory=dict)

    def shown(self, slide: int) -> str:
        return render_duration(slide).lower() if self.in_time else f"{slide:,} row{'s' if slide > 1 else ''}"


def slides_of(nodes: Mapping[str, Node]) -> list[StreamSlides]:
    found: dict[tuple[str, str], StreamSlides] = {}
    for name, node in nodes.items():
        _collect(name, node, found)
    return list(found.values())


def _collect(query: str, node: Node, found: dict[tuple[str, str], StreamSlides]) -> None:
    for child in children(node):
        _collect(query, child, found)
    if not isinstance(node, AggregateNode | RelationNode):
        return
    slide = node.window.time_slide
    if slide is not None:
        kind, length = "wall clock" if slide.wall_clock else "event time", slide.micros
        kind += f", offset {render_duration(slide.offset).lower()}" if slide.offset else ""
    elif (events := node.window.slide.events) is not None:
        kind, length = "count per partition" if node.partition_by else "count", events
    else:
        return  # sessions close when they are over
    stream = ", ".join(sorted(streams(node)))
    of_kind = found.setdefault((stream, kind), StreamSlides(stream, kind, slide is not None))
    names = of_kind.queries.setdefault(length, [])
    if query not in names:
        names.append(query)


class GraphPicture:
    """A graph with a place for each node, to be drawn where there is room for its width and height."""

    def __init__(self, slides: StreamSlides) -> None:
        self._graph = SlidingGraph(slides.queries)
        self._tree = self._graph.tree()
        self._boxes = {slide: _box(slide, slides) for slide in self._tree}
        self._places: dict[int, tuple[float, float]] = {}
        self._heading = f"{slides.stream}: slides by {slides.kind}"
        self._tests = _tests(slides, self._graph)
        self.width = max(self._arrange(self._graph.root, 0, _HEADING), text_width(self._heading, "title"))
        self.width = max(self.width, text_width(self._tests))
        self.height = max(y + self._boxes[slide].height for slide, (_, y) in self._places.items())

    def _arrange(self, slide: int, x: float, y: float) -> float:
        """A node over the middle of its children, which stand side by side; how far right they go."""
        box, right = self._boxes[slide], x
        for number, child in enumerate(self._tree[slide]):
            right = self._arrange(child, right + (_ACROSS if number else 0), y + box.height + _DOWN)
        span = max(right - x, box.width)
        self._places[slide] = (x + (span - box.width) / 2, y)
        return x + span

    def draw(self, sheet: Sheet, x: float, y: float) -> None:
        sheet.write(self._heading, x, y + 4, "title")
        sheet.write(self._tests, x, y + 22, "quiet")
        placed = {s: sheet.place(self._boxes[s], x + left, y + top) for s, (left, top) in self._places.items()}
        for start, end, strong in self._graph.edges():
            sheet.join_down(placed[start], placed[end], strong=strong)


def _tests(slides: StreamSlides, graph: SlidingGraph) -> str:
    """What the graph spares; by time, positions are ticks of the root."""
    tested = 1 + (graph.nodes_tested() - 1) * (graph.root if slides.in_time else 1)
    return f"tests per {'tick' if slides.in_time else 'row'}: {tested:.3g}; without the graph: {len(graph)}"


def _box(slide: int, slides: StreamSlides) -> Box:
    queries = slides.queries.get(slide, [])
    name = f"{slides.stream} {slides.kind} {slide}"
    if not queries:
        tip = "the greatest common divisor: a node without queries"
        return Box("dummy", name, (slides.shown(slide), "no query"), tip)
    count = queries[0] if len(queries) == 1 else f"{len(queries)} queries"
    return Box("slide", name, shortened((slides.shown(slide), count)), ", ".join(queries))
