"""List all hybrid tasks by name."""

from collections.abc import Mapping

from environments.hybrid.tasks import files, programs, tables, text, web
from environments.hybrid.tasks.task import Template

FAMILIES = (files.FAMILY, text.FAMILY, tables.FAMILY, programs.FAMILY, web.FAMILY)
TEMPLATES: Mapping[str, Template] = {
    name: template for family in FAMILIES for name, template in family.templates.items()
}
