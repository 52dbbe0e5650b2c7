"""List the layouts, widgets, fonts, themes and screen sizes of generated pages, and which of them are held out.

The scripts in `parts/` define the layouts and widgets; a test compares the names.
"""

from collections.abc import Mapping

VERSION = "pages-1"
"""Version of the generator. Another version makes other pages from the same seed."""
LAYOUTS: tuple[str, ...] = (
    "form", "two-columns", "three-columns", "tabs", "side-tabs", "list", "table", "dialog", "card-grid", "menu-bar",
    "toolbar", "wizard", "calendar-page", "settings", "mail", "chat", "file-list", "cart", "sidebar", "right-rail",
    "hero", "sign-in", "profile", "article", "dashboard", "folded-sections", "split-panes", "gallery", "plans",
    "search-results", "receipt", "map", "more", "bottom-bar", "phone", "survey", "sheet", "scattered", "running-text",
    "comparison", "window", "long-page",
)  # fmt: skip
LAYOUTS_HELD_OUT: tuple[str, ...] = (
    "player", "kanban", "timeline", "checkout", "log", "drawer", "carousel", "property-grid",
)  # fmt: skip
WIDGETS: tuple[str, ...] = (
    "text field", "password", "text area", "number", "search box", "check box", "switch", "radio", "select", "combo",
    "slider", "date", "calendar", "tabs", "menu", "context menu", "accordion", "list box", "scroll box",
    "sorted table", "row table", "dialog", "toast", "hinted icons", "icon button", "tags", "colour swatch",
    "drag list", "drop zone", "link", "breadcrumb", "buttons", "double click", "editable text", "progress",
)  # fmt: skip
WIDGETS_HELD_OUT: tuple[str, ...] = (
    "segmented", "time", "stepper", "tree", "pagination", "star rating", "chips",
)  # fmt: skip
FONTS: Mapping[str, str] = {
    "DejaVu Sans": "fonts-dejavu-core",
    "DejaVu Serif": "fonts-dejavu-core",
    "DejaVu Sans Mono": "fonts-dejavu-core",
    "Liberation Sans": "fonts-liberation",
    "Liberation Serif": "fonts-liberation",
    "Liberation Mono": "fonts-liberation",
    "FreeSans": "fonts-freefont-ttf",
    "FreeSerif": "fonts-freefont-ttf",
    "FreeMono": "fonts-freefont-ttf",
    "Nimbus Sans": "fonts-urw-base35",
    "C059": "fonts-urw-base35",
    "URW Bookman": "fonts-urw-base35",
    "P052": "fonts-urw-base35",
    "URW Gothic": "fonts-urw-base35",
}
"""Debian package of each font, by family."""
FONTS_HELD_OUT: tuple[str, ...] = ("P052", "URW Gothic")
THEMES: tuple[str, ...] = ("plain", "paper", "dark", "contrast", "soft", "bevel", "mint", "rose")
SIZES: Mapping[tuple[int, int], int] = {
    (160, 210): 10, (200, 240): 4, (240, 320): 4, (320, 240): 4, (320, 480): 3, (360, 640): 2, (400, 300): 3,
    (480, 640): 2, (640, 480): 3, (800, 600): 2, (1024, 768): 1, (1280, 720): 1, (1280, 800): 1,
}  # fmt: skip
"""Share of each screen size, in pixels. Small screens are cheap, and the default policy sees them."""
FAMILY = 10_000_000
"""Number of seeds of one split of one `seed` of the config."""
