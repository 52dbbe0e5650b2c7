"""Families of tasks; the subset has a suffix, as AndroidWorld's has."""

from typing import Any

from android_world import tasks

FAMILIES = {"android_world": tasks.BENCHMARK, "miniwob": tasks.PAGES, "miniwob_subset": tasks.PAGES}


def get_families() -> list[str]:
    return list(FAMILIES)


class TaskRegistry:
    def get_registry(self, family: str) -> dict[str, Any]:
        return FAMILIES[family]
