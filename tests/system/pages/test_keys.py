"""What keys write in a real headless Chromium, and which events a page sees."""

import asyncio
from pathlib import Path

from environments.chromium.in_page import InPageReward
from environments.html.environment import HtmlConfig, HtmlEnvironment
from environments.pool import SandboxPool
from schemas.action import Action, Hotkey, Press, Release, Type
from schemas.keyboard import KEYS
from schemas.tables.task import TaskEntry

SHIFT = list(zip("`1234567890-=[]\\;',./az", '~!@#$%^&*()_+{}|:"<>?AZ', strict=True))
WRITTEN: list[tuple[Action, str]] = [
    *((Hotkey(key=f"shift {alone}"), shifted) for alone, shifted in SHIFT),
    *((Hotkey(key=alone), alone) for alone, _ in SHIFT),
    (Hotkey(key="A"), "A"),
    (Hotkey(key="ctrl+b"), ""),
    (Hotkey(key="num7"), "7"),
    (Hotkey(key="add"), "+"),
    (Hotkey(key="space"), " "),
    (Hotkey(key="shift plus"), "+"),
    (Press(key="shift"), ""),
    (Type(content="ab1"), "AB!"),
    (Release(key="shift"), ""),
    (Type(content="aB1!"), "aB1!"),
    (Press(key="C"), "C"),
]
SEEN = ("arrowleft", "f5", "num0", "shiftright", "printscreen", "apps", "volumeup", "capslock", "metaright")
PAGE = """<!DOCTYPE html><textarea></textarea><script>
const field = document.querySelector("textarea"), seen = [];
onkeydown = (event) => { seen.push(`${event.key} ${event.code} ${event.location} ${event.keyCode}`); };
window.task = {
  start() { field.focus(); return "Type."; },
  reward() { return Number(field.value === WANTED && EVENTS.every((one) => seen.includes(one))); },
};
</script>"""


def verdict(folder: Path, actions: list[Action], wanted: str, events: list[str]) -> float | None:
    page = PAGE.replace("WANTED", repr(wanted)).replace("EVENTS", repr(events))
    (folder / "page.html").write_text(page)
    config = HtmlConfig(folder=str(folder), tasks={"page": TaskEntry(instruction="{}")}, width=200, height=80)
    environment = HtmlEnvironment("mine", config.model_copy(update={"browsers": 1, "pages": 1}))

    async def run() -> float | None:
        async with SandboxPool([environment]) as pool, pool.lease(environment.task("page"), 1) as sandbox:
            for action in actions:
                await sandbox.perform(action)
            return (await sandbox.verify(InPageReward())).reward

    return asyncio.run(run())


def test_a_key_writes_what_it_writes_on_a_keyboard_with_shift_and_without(tmp_path: Path) -> None:
    wanted = "".join(text for _, text in WRITTEN)
    assert verdict(tmp_path, [action for action, _ in WRITTEN], wanted, []) == 1.0


def test_a_page_sees_each_key_by_its_own_names(tmp_path: Path) -> None:
    keys = [KEYS[name] for name in SEEN]
    events = [f"{key.key} {key.code} {key.location} {key.number}" for key in keys]
    actions: list[Action] = [Hotkey(key=name) for name in SEEN if name != "num0"]
    assert verdict(tmp_path, [*actions, Hotkey(key="num0")], "0", events) == 1.0
