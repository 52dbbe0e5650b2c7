"""A worker of somebody else's: it knows `flywheel_worker` alone, and does what the text that is typed says."""

import os
import subprocess
import sys
import time

import numpy as np
from flywheel_worker import Refused, serve, shown

if os.environ.get("LACKS"):
    import a_package_that_nobody_has  # noqa: F401  # pyright: ignore[reportMissingImports]
if os.environ.get("NEVER"):
    time.sleep(60)


class Foreign:
    def __init__(self):
        self.text, self.seen = "", np.zeros((30, 40, 3), np.uint8)

    def reset(self, fields):
        assert not {"environments", "schemas"} & set(sys.modules), "a worker knows nothing of flywheel"
        self.seen[:] = fields["seed"] % 256
        self.text = f"{fields['task']} {fields['seed']}"
        return shown(self.seen, self.text, done=fields.get("over", False))

    def step(self, action):
        kind, said = action["type"], action.get("content", action.get("key", ""))
        if kind == "finished":
            return shown(self.seen, self.text, float(said == "42"), True)
        if kind == "hotkey":
            return shown(self.seen, said)
        if kind != "type":
            raise Refused(f"nobody can {kind}")
        return getattr(self, said)()

    def close(self):
        self.text = "closed"

    def win(self):
        return shown(self.seen, self.text, 1.0, True, truncated=False)

    def limit(self):
        return shown(self.seen, self.text, 0.5, True, truncated=True)

    def vain(self):
        return shown(self.seen, self.text, 0.0, action_error="there is nothing there")

    def talk(self):
        print("{" * 1_000_000, flush=True)
        return self.win()

    def die(self):
        print("a last word", flush=True)
        os._exit(3)

    def kill(self):
        os.kill(os.getpid(), 9)

    def hang(self):
        time.sleep(600)

    def garble(self):
        os.write(int(sys.argv[1]), b"mumble mumble")
        return self.win()

    def flood(self):
        os.write(int(sys.argv[1]), b"\xff" * 8)
        return self.win()

    def fail(self):
        raise ValueError("the world is odd")

    def draw(self):
        return shown(np.zeros((3, 4)), self.text)

    def leave(self):
        """Leaves processes that do all they can to get away: a session of its own, and a parent that is gone."""
        orphan = (
            "import subprocess as s; print(s.Popen(['sleep', '600'], start_new_session=True, stdout=s.DEVNULL).pid)"
        )
        held = subprocess.Popen(["sleep", "600"], start_new_session=True)
        told = subprocess.run([sys.executable, "-c", orphan], stdout=subprocess.PIPE, text=True, start_new_session=True)
        return shown(self.seen, f"{os.getpid()} {held.pid} {told.stdout.strip()}")

    def number(self):
        return shown(self.seen, str(os.getpid()))

    def variables(self):
        return shown(self.seen, " ".join(sorted(os.environ)))


if __name__ == "__main__":
    serve(Foreign)
