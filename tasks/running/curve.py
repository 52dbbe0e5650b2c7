"""Draw a learning curve as a small SVG, for pages that show only a picture."""

from collections.abc import Sequence

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 48, 16, 16, 36
BLUE, GREY = "#3b6fb6", "#777"

Point = tuple[int, float, float, float]
"""Iteration, success, and its interval's ends, all of success in [0, 1]."""


def curve(points: Sequence[Point], explorer: float | None = None) -> str:
    """Draw success by iteration with its intervals, and the explorer's as a dashed line.

    Args:
        points: in the order of iterations.
        explorer: its success, in [0, 1].
    """
    first, last = (points[0][0], points[-1][0]) if points else (0, 0)

    def x(iteration: int) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (0.5 if first == last else (iteration - first) / (last - first))

    def y(success: float) -> float:
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - success)

    def line(left: float, top: float, right: float, bottom: float, more: str) -> str:
        return f'<line x1="{left:.1f}" y1="{top:.1f}" x2="{right:.1f}" y2="{bottom:.1f}" {more}/>'

    def text(left: float, top: float, words: str, anchor: str) -> str:
        return f'<text x="{left:.1f}" y="{top:.1f}" text-anchor="{anchor}" fill="{GREY}">{words}</text>'

    parts: list[str] = []
    for tenth in range(0, 11, 2):
        at = y(tenth / 10)
        parts += [
            line(LEFT, at, WIDTH - RIGHT, at, 'stroke="#ddd"'),
            text(LEFT - 6, at + 4, f"{tenth / 10:.1f}", "end"),
        ]
    if explorer is not None:
        parts.append(line(LEFT, y(explorer), WIDTH - RIGHT, y(explorer), f'stroke="{GREY}" stroke-dasharray="5 4"'))
        parts.append(text(WIDTH - RIGHT, y(explorer) - 5, "explorer", "end"))
    way = " ".join(f"{x(iteration):.1f},{y(success):.1f}" for iteration, success, _, _ in points)
    parts.append(f'<polyline points="{way}" fill="none" stroke="{BLUE}" stroke-width="2"/>')
    for iteration, success, low, high in points:
        parts.append(line(x(iteration), y(low), x(iteration), y(high), f'stroke="{BLUE}"'))
        parts.append(f'<circle cx="{x(iteration):.1f}" cy="{y(success):.1f}" r="3.5" fill="{BLUE}"/>')
    every = max(1, (last - first) // 10)
    parts += [text(x(one[0]), HEIGHT - 16, str(one[0]), "middle") for one in points if (one[0] - first) % every == 0]
    parts.append(text(WIDTH / 2, HEIGHT - 2, "iteration", "middle"))
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">'
    return f'{head}<rect width="100%" height="100%" fill="white"/>{"".join(parts)}</svg>'
