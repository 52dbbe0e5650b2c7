"""Learn: data, algorithms, engines, planning, parallel, checkpoint, the trainer's process."""

from common.process import collect_garbage_seldom

collect_garbage_seldom()
